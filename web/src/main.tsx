import { createRoot } from "react-dom/client";
import { showTheme } from "./live/browser.js";
import { App } from "./ui/App.js";
import "./style/colours.css";
import "./style/page.css";
import "./style/conversation.css";
import "./style/views.css";
import "./style/forced.css";

showTheme();
const root = document.getElementById("root");
if (root) createRoot(root).render(<App />);
