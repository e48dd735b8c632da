"use strict";
// Runs before anything is drawn, so that the page does not flash in the wrong colours.
document.documentElement.dataset.theme = localStorage.getItem("fxgraph-theme") ?? "auto";
