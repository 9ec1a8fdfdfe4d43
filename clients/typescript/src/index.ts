/** A client of Tarko event servers: every event once, in order, whatever becomes of the connection. */

export type { Answer } from "./answer.js";
export type { ClientOptions, ReadOptions, SessionPage, Stoppable } from "./client.js";
export { Client } from "./client.js";
export { ClientError, ConnectionLost, NotTarko, Refused, TurnFailed } from "./errors.js";
export type {
  AgentEvent,
  CustomEvent,
  Envelope,
  EventMetadata,
  EventOf,
  KnownEvent,
  KnownType,
} from "./events.js";
export { isControl, isEvent, isPassing, placeOf } from "./events.js";
export type * from "./generated.js";
export type { Backoff, ConnectionState, OnState } from "./link.js";
export type { EventPage, Filter, FollowOptions, Query, QueryOptions, Where } from "./session.js";
export { EventStream, Session } from "./session.js";
export type { OpenSocket, SocketLike } from "./socket.js";
