// Package cost predicts how long passes of a model take with a plan.
//
//   - A [Machine] holds measured rates: of memory, disk and products.
//   - A [Model] is the cost of passes: bytes that a pass reads from each tier, and operations. New
//     counts them in a skeleton and a plan.
//   - A tokenPass is one pass: its tokens, their sequences, and the tokens before them.
//
// Computing overlaps with reading weights that every pass streams; reads of missing experts are
// added, because they are known only after their router has run. A time is nil if a rate that it
// depends on is unknown.
//
// The package measures nothing and makes no plan.
package cost
