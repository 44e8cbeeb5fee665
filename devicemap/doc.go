// Package devicemap plans where a model's weights live: module path → device.
//
// Its nouns: a [Device] is a place for weights (a GPU's number, "cpu", "disk"); a
// [Map] is an ordered list of paths with their devices, of which the longest that
// fits a name decides; a [Budget] is what one device may hold, with the room that
// keys and values and activations take of it; a [Plan] is a map with the memory it
// needs on each device and the reasons for it.
//
// The flow: [ParsePolicy] and [ParseMaxMemory] read what the user wrote, [Solve] fits
// a model into budgets and returns a plan, which prints itself as text
// ([Plan.Explain]), as a picture ([Plan.Render]) and as JSON. What the user placed by
// hand stays where it is; the rest is fitted around it.
//
// [InferAutoDeviceMap], [BalancedMemory], [MaxMemory], [ParseSize], [DTypeByteSize],
// [ComputeModuleSizes], [FindTiedParameters], [CleanDeviceMap] and [CheckDeviceMap]
// answer as the functions of these names in Hugging Face Accelerate 1.15 do,
// surprises included; Heft's own policy shares their tables and nothing else.
//
// The package is pure: it looks at no machine and opens no file, and the same input
// gives the same plan. It knows modules by path, class and size; only the own policy
// looks at a module's kind, to tell tables of which one row is read from weights that
// are read whole.
package devicemap
