// A peer of twinlink that receives, in JavaScript: docs/javascript.md.

export { ReceivingNode } from "./node.js";
export { connect } from "./websocket.js";
