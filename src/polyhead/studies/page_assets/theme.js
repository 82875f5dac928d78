// Before anything is drawn: the theme the reader chose last time, and a sign that scripts run.
"use strict";
document.documentElement.classList.add("js");
try {
  const theme = localStorage.getItem("polyhead-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* storage may be switched off; then the page follows the system */ }
