/** Shell lines that ask this server for what the page shows. Pure. */

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Follows a session's stream from after an event. The token, where one is asked for, is the reader's to put in. */
export function curlFrom(origin: string, sessionId: string, eventId: string): string {
  const params = new URLSearchParams({ sessionId, after: eventId });
  return `curl -N ${quoted(`${origin}/api/v1/sessions/events/stream?${params}`)}`;
}
