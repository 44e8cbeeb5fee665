// Package cuda is the backend for an NVIDIA GPU. Without the build tag cuda the package is empty.
//
// A [Backend] owns the memory of one GPU, a queue of work, and the loaded kernels. An operation
// checks its operands, copies its host data (ids, page tables) into a pinned ring, and appends a
// launch to the queue. It has read its slices when it returns. [Backend.Sync] waits for the queue.
//
// There are two sets of kernels. The exact kernels in exact.cu add each sum in the order of the
// CPU's kernels with the same number of lanes. Their results have the CPU's bits, as `--precision
// high` requires (TestSameAsCPU). They are the reference and are not tuned. With [Options].Fast,
// the kernels in fast.cu replace them for operations that may round: products and attention on
// tensor cores, norms, and fused pairs of operations. The order of an element's sum then depends
// only on shapes and, in attention, on positions. The router of MoE layers runs on the host.
//
// The last launch stays pending until the next launch, or until anything else is queued. An
// operation can thus replace the pending launch by a kernel that computes both; see fuse.go.
//
// If LD_LIBRARY_PATH names the simulated driver of sim, tests run on it; see sim/build.sh.
package cuda
