// What the page does by itself: keys, copying, and keeping what its reader has opened or selected.
'use strict';

const live = document.getElementById('live');
const connection = document.getElementById('connection');
let source = null;
let heldBack = false;
let hiddenTimer = 0;

// Browsers open six connections to one address, for all tabs together: a tab that nobody sees gives its own back.
const HIDDEN_FOR_MS = 30000;

htmx.createEventSource = (url) => {
  source = new EventSource(url);
  return source;
};

function reconnect() {
  if (!source) return;
  source.close();
  // The extension of htmx makes a new one after an error of one that is closed.
  source.dispatchEvent(new Event('error'));
}

function show(state, text) {
  if (connection.dataset.state === state) return;
  connection.dataset.state = state;
  document.getElementById('connection-text').textContent = text;
}

document.body.addEventListener('htmx:sseOpen', () => show('live', 'live'));
document.body.addEventListener('htmx:sseError', () => show('lost', 'reconnecting'));

document.addEventListener('visibilitychange', () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(() => source && source.close(), HIDDEN_FOR_MS);
  } else if (source && source.readyState === EventSource.CLOSED) {
    reconnect();
  }
});

// A section is not replaced while some of it is selected. The stream sends every section anew when it is opened.
function selectedIn(element) {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(element, true);
}

document.addEventListener('selectionchange', () => {
  if (heldBack && document.getSelection().isCollapsed) {
    heldBack = false;
    reconnect();
  }
});

const kept = new Map();
let focused = null;

live.addEventListener('htmx:sseBeforeMessage', (event) => {
  const section = event.target;
  if (selectedIn(section)) {
    heldBack = true;
    event.preventDefault();
    return;
  }
  for (const details of section.querySelectorAll('details[data-keep]')) kept.set(details.dataset.keep, details.open);
  const active = document.activeElement;
  focused = section !== active && section.contains(active) ? placeOf(section, active) : null;
});

live.addEventListener('htmx:sseMessage', (event) => {
  for (const details of event.target.querySelectorAll('details[data-keep]')) {
    if (kept.get(details.dataset.keep)) details.open = true;
  }
  kept.clear();
  if (focused !== null) refocus(event.target, focused);
  focused = null;
});

const FOCUSABLE = 'a[href], button, summary, input';

function placeOf(section, element) {
  const group = element.closest('details[data-keep]');
  const within = group || section;
  return { keep: group && group.dataset.keep, index: [...within.querySelectorAll(FOCUSABLE)].indexOf(element) };
}

function refocus(section, place) {
  let within = section;
  if (place.keep !== null) {
    within = [...section.querySelectorAll('details[data-keep]')].find((each) => each.dataset.keep === place.keep);
  }
  const element = within && within.querySelectorAll(FOCUSABLE)[place.index];
  if (element) element.focus({ preventScroll: true });
}

document.addEventListener('keydown', (event) => {
  const search = document.getElementById('key');
  const typing = event.target.closest('input, textarea, select, [contenteditable]');
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === 'Escape' && event.target === search) {
    search.blur();
  }
});

document.addEventListener('click', async (event) => {
  const button = event.target.closest('button[data-copy]');
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = 'Copied';
  } catch {
    // Without the right to the clipboard the command is selected instead.
    document.getSelection().selectAllChildren(button.parentElement.querySelector('code'));
    button.textContent = 'Selected';
  }
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
});
