"use strict";
// Runs before the page is drawn, so that it does not flash in the wrong colours.
document.documentElement.dataset.theme = localStorage.getItem("fxgraph-theme") ?? "auto";
