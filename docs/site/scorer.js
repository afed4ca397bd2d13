// The page that owns a claim comes before the decisions and figures that led to it, which mention it too.
const MENTIONS = /^(docs\/decisions\/|CONTRIBUTING$|CHANGELOG$|docs\/(benchmarks|releasing)$|(bench|journal|local|tests|docs\/site)\/.*README$)/;

// Sphinx takes all of it from here; its own search has the same numbers.
var Scorer = {
  score: ([page, , , , score]) => (MENTIONS.test(page) ? score - 1 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
