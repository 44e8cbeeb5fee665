//go:build cuda

package driver

import (
	"errors"

	"gorgonia.org/cu"
)

// OutOfMemory reports whether err says that a device has too little memory for an allocation. Too little host memory
// that can be pinned is another error.
func OutOfMemory(err error) bool { return errors.Is(err, cu.OutOfMemory) }
