//go:build unix && !linux

package hostmem

// adviseHuge does nothing: only Linux is asked.
func adviseHuge([]byte) {}
