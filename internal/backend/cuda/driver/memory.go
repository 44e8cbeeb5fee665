//go:build cuda

package driver

import (
	"errors"

	"gorgonia.org/cu"
)

// OutOfMemory reports whether err says that a device has too little memory for an allocation. It is
// false for failures to pin host memory.
func OutOfMemory(err error) bool { return errors.Is(err, cu.OutOfMemory) }
