package filehash_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/filehash"
)

func TestSHA256(t *testing.T) {
	path := filepath.Join(t.TempDir(), "abc")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-4's example
	if got, err := filehash.SHA256(path); err != nil || got != want {
		t.Errorf("SHA256 = %s, %v, want %s", got, err, want)
	}
	if _, err := filehash.SHA256(path + "d"); !os.IsNotExist(err) {
		t.Errorf("a missing file: got %v, want one that says so", err)
	}
}
