package hostmem

import (
	"fmt"
	"os"

	"github.com/heftai/heft/internal/topology"
)

// limited adds to the error of a mapping that a limit of the process's address space may be the cause, if it has one.
func limited(err error) error {
	limit, left := topology.AddressSpace(os.DirFS("/"))
	if limit == 0 || !outOfMemory(err) {
		return err
	}
	const mib = 1 << 20
	return fmt.Errorf("%w: the address space of the process is limited to %d MiB, of which %d MiB are left, and mapped files count: use `ulimit -v unlimited`, and limit memory with --max-memory or a control group",
		err, limit/mib, left/mib)
}
