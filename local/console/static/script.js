// What was peeked on the page of the stack: its button closes it, and gives the focus back.
'use strict';

document.addEventListener('click', (event) => {
  const close = event.target.closest('button[data-close-peek]');
  if (!close) return;
  const name = close.dataset.closePeek;
  document.getElementById('local-said').replaceChildren();
  const peek = [...document.querySelectorAll('button[data-peek]')].find((each) => each.dataset.peek === name);
  if (peek) peek.focus();
});
