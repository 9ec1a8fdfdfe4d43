/** Pictures of the buttons; what they do stands in the button's label. */

const PATHS = {
  menu: "M4 6h16M4 12h16M4 18h16",
  plus: "M12 5v14M5 12h14",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM20 20l-4-4",
  pencil: "M4 20h4L19 9l-4-4L4 16v4Z",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  send: "M5 12h14M13 6l6 6-6 6",
  stop: "M7 7h10v10H7z",
  queue: "M5 6h14M5 12h14M5 18h8",
  down: "M12 5v14M6 13l6 6 6-6",
  clip: "M8 12V7a4 4 0 0 1 8 0v9a2.5 2.5 0 0 1-5 0V8",
  close: "M6 6l12 12M18 6L6 18",
  play: "M8 5l11 7-11 7z",
  pause: "M8 5v14M16 5v14",
  check: "M5 13l4 4L19 7",
  wrench: "M14.5 6a4 4 0 0 0-5 5L4 16.5 7.5 20 13 14.5a4 4 0 0 0 5-5l-2.5 2.5-3-3L14.5 6Z",
  bulb: "M9 18h6M10 21h4M12 3a6 6 0 0 0-3.5 10.9c.6.5 1 1.3 1 2.1h5c0-.8.4-1.6 1-2.1A6 6 0 0 0 12 3Z",
  warning: "M12 4l9 16H3zM12 10v5M12 17.5v.5",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M19 5l-1.5 1.5M6.5 17.5L5 19",
  moon: "M20 14a8 8 0 1 1-10-10 6.5 6.5 0 0 0 10 10Z",
  half: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  pulse: "M3 12h4l3-8 4 16 3-8h4",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  leave: "M14 4H5v16h9M10 12h11M17 8l4 4-4 4",
  open: "M12 16V5M7 9l5-5 5 5M5 20h14",
} as const;

export function Icon({ name, size = 16 }: { name: keyof typeof PATHS; size?: number }) {
  return (
    <svg className={`icon icon-${name}`} viewBox="0 0 24 24" width={size} height={size} aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
