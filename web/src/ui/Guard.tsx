/** What a view that can't be drawn is replaced by, so that the rest of the page stays usable. */

import type { ReactNode } from "react";
import { Component } from "react";

interface Props {
  children: ReactNode;
}

export class Guard extends Component<Props, { problem: string | undefined }> {
  override state = { problem: undefined };

  static getDerivedStateFromError(error: unknown) {
    return { problem: String(error) };
  }

  override render(): ReactNode {
    const { problem } = this.state;
    if (problem === undefined) return this.props.children;
    return (
      <div className="empty" role="alert">
        <p>This view can't be drawn.</p>
        <p className="small">{problem}</p>
      </div>
    );
  }
}
