//go:build !unix

package kvstore

import (
	"fmt"
	"os"
)

// checksModes says that permissions have a meaning here.
const checksModes = false

// openRegular opens a file for reading. It follows no symbolic link.
func openRegular(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		if err == nil {
			err = fmt.Errorf("kvstore: %s is not a regular file", path)
		}
		return nil, err
	}
	return os.Open(path)
}
