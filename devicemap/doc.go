// Package devicemap plans where a model's weights live: module path → device.
//
// A [Device] is a place for weights: a GPU's number, "cpu" or "disk". A [Map] is an ordered list of
// paths with their devices; the longest path that a name is under decides. A [Budget] is what one
// device may hold, less the memory for the KV cache and activations. A [Plan] is a map with the
// memory that it takes on each device.
//
// [ParsePolicy] and [ParseMaxMemory] read what the user wrote. [Solve] fits a model into budgets and
// returns a plan, which prints itself as text ([Plan.Explain]), as a picture ([Plan.Render]) and as
// JSON. Modules that the user placed stay there, and Solve fits the rest around them.
//
// [InferAutoDeviceMap], [BalancedMemory], [MaxMemory], [ParseSize], [DTypeByteSize],
// [ComputeModuleSizes], [FindTiedParameters], [CleanDeviceMap] and [CheckDeviceMap] return what the
// functions of these names in Hugging Face Accelerate 1.15 return, also where that is surprising.
// Heft's own policy shares only their tables of names and sizes.
//
// The package is pure: it looks at no machine and opens no file. It knows modules by path, class and
// size. Only Heft's own policy looks at a module's kind, to tell embedding tables and routed experts
// from weights that are read whole.
package devicemap
