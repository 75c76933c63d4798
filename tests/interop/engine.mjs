// The reference engine's names, in one place; its own rooms are not touched.

export { CriticalError, Loop, runWorkflow } from "@rivetkit/workflow-engine";
