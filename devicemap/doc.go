// Package devicemap plans on which device each module of a model is placed.
//
// A [Device] is a place for weights: a GPU's number, "cpu" or "disk". A [Map] is an ordered list
// of paths with their devices; a name has the device of the longest path that is a prefix of it.
// A [Budget] is what one device may hold, including the memory for the KV cache and activations.
// A [Plan] is a map with the memory that it takes on each device.
//
// [ParsePolicy] and [ParseMaxMemory] parse user input. [Solve] fits a model into budgets and
// returns a plan, which can be formatted as text ([Plan.Explain]), as a picture ([Plan.Render])
// and as JSON. Modules that the user placed stay there, and Solve fits the rest around them.
//
// [InferAutoDeviceMap], [BalancedMemory], [MaxMemory], [ParseSize], [DTypeByteSize],
// [ComputeModuleSizes], [FindTiedParameters], [CleanDeviceMap] and [CheckDeviceMap] return the
// results of the functions of these names in Hugging Face Accelerate 1.15, including surprising
// ones. Heft's own policy shares only their tables of names and sizes.
//
// The package does not inspect the machine and opens no file. It knows modules by path, class and
// size. Only Heft's own policy uses a module's kind, to distinguish embedding tables and routed
// experts from weights that are read whole.
package devicemap
