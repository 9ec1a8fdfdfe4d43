/** A value that many look at; each change replaces it. */

import { useSyncExternalStore } from "react";

export class Store<T> {
  readonly #onlookers = new Set<() => void>();
  #value: T;

  constructor(value: T) {
    this.#value = value;
  }

  get = (): T => this.#value;

  set(change: Partial<T>): void {
    this.#value = { ...this.#value, ...change };
    for (const tell of this.#onlookers) tell();
  }

  subscribe = (tell: () => void): (() => void) => {
    this.#onlookers.add(tell);
    return () => this.#onlookers.delete(tell);
  };
}

export function useStore<T>(store: Store<T>): T {
  return useSyncExternalStore(store.subscribe, store.get);
}
