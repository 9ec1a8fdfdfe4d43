/** The TypeScript client, named in one place. */

export * from "../../../clients/typescript/src/index.js";
