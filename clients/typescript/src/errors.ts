/** What can go wrong between a client and its server. `code` is for programs, the message for people. */

const COME_BACK = new Set(["storage_unavailable", "server_shutdown", "bad_gateway"]);

/** Anything that this client throws, but for the reason of an `AbortSignal`. */
export class ClientError extends Error {
  override name = "ClientError";

  constructor(
    message: string,
    /** Stable, in lower snake case. */
    readonly code: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }

  /** Whether the same request may be answered later. */
  get isTemporary(): boolean {
    return false;
  }
}

/** The connection broke, or never came to be, or the server went silent. */
export class ConnectionLost extends ClientError {
  override name = "ConnectionLost";

  constructor(message: string, options?: ErrorOptions) {
    super(message, "connection_lost", options);
  }

  override get isTemporary(): boolean {
    return true;
  }
}

/** Somebody answers, but not what a Tarko server would. */
export class NotTarko extends ClientError {
  override name = "NotTarko";

  constructor(message: string, options?: ErrorOptions) {
    super(message, "not_a_tarko_server", options);
  }
}

/** What a refusal says besides its message. */
export interface RefusalFields {
  code: string;
  httpStatus?: number | undefined;
  retryAfterMs?: number | undefined;
  details?: Record<string, unknown> | undefined;
}

/** The server answered with an error; `code` and `details` are its own. */
export class Refused extends ClientError {
  override name = "Refused";
  /** Undefined where the answer came on a socket. */
  readonly httpStatus: number | undefined;
  /** How long the server wants to be left alone, where it says so. */
  readonly retryAfterMs: number | undefined;
  readonly details: Record<string, unknown> | undefined;

  constructor(message: string, fields: RefusalFields) {
    super(message, fields.code);
    this.httpStatus = fields.httpStatus;
    this.retryAfterMs = fields.retryAfterMs;
    this.details = fields.details;
  }

  override get isTemporary(): boolean {
    return this.httpStatus === 503 || COME_BACK.has(this.code);
  }
}

/** What a failed turn says besides its message. */
export interface FailureFields {
  code: string;
  status: string;
  response: string;
  turnId: string;
  isRecoverable: boolean;
}

/** A query's turn ended `failed` or `interrupted`, or was removed before it started. `code` is the turn's own. */
export class TurnFailed extends ClientError {
  override name = "TurnFailed";
  readonly status: string;
  /** The text that came before the failure. */
  readonly response: string;
  readonly turnId: string;
  /** Whether the agent thinks that another try may help. */
  readonly isRecoverable: boolean;

  constructor(message: string, fields: FailureFields) {
    super(message, fields.code);
    this.status = fields.status;
    this.response = fields.response;
    this.turnId = fields.turnId;
    this.isRecoverable = fields.isRecoverable;
  }
}
