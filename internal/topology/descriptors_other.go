//go:build !unix

package topology

import "math"

// FreeDescriptors returns how many more files the process may open. Only Unix limits them.
func FreeDescriptors() int { return math.MaxInt32 }
