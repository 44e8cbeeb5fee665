// Package placement plans models before any weight is read: which bytes live where, and how much
// memory the KV cache, activations, staging and requests get.
//
//   - [Settings] are what a caller asks for and, in a plan, the sizes and formats that were chosen.
//   - A [Planner] plans one model, also several times with other settings.
//   - A [Placement] is its result: a device map with the sizes of each device, and the settings
//     for the model that runs with it. Package dispatch opens a model of it.
//   - Findings are what earlier starts have written about a checkpoint; Choices are decisions of
//     the plan that have no field in the caller's options, such as which weights are coded.
//
// [Planner.Plan] first decides whether weights are coded, by comparing plans. For each of these it
// makes budgets of the limits, reserves the KV cache of one sequence (kvRoom), and lets package
// devicemap place the weights. A placer repeats that for batch sizes, bands and GPUs, and keeps
// the placement with which a usual request reads least from the disk. Memory that weights leave
// goes to the KV cache.
//
// Settings also compute sizes for a running model, such as the activations of a pass, so that
// plans and models agree.
//
// The package knows skeletons, headers and this machine. It opens no model, and knows no sequences
// and no passes. Its errors begin with "dispatch:", the package that users call.
package placement
