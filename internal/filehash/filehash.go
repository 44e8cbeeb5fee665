// Package filehash hashes files. A hash tells whether two files have the same bytes: the programs of two
// ranks, the data of a run that is resumed. The package does not know what is in a file, and keeps no
// hash.
package filehash

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
)

// SHA256 returns the SHA-256 of the file's bytes, in hexadecimal. It reads the whole file.
func SHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
