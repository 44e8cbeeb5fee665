package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/heftai/heft/internal/smallfile"
)

// ChecksumFile is the name of the file with the checksums of the other files.
const ChecksumFile = "checksums.json"

// checksums maps names of files to their CRC-32C, in hexadecimal.
type checksums map[string]string

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// summed returns a hash for the bytes of a file that is about to be written.
func (f *Folder) summed(name string) io.Writer {
	if f.sums == nil {
		f.sums = map[string]hash.Hash32{}
	}
	f.sums[name] = crc32.New(castagnoli)
	return f.sums[name]
}

// writeChecksums writes the checksums of all files in the directory. It reads only those of hooks
// and of other ranks.
func (f *Folder) writeChecksums() error {
	entries, err := os.ReadDir(f.Temp())
	if err != nil {
		return err
	}
	sums := checksums{}
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name() == ChecksumFile {
			continue
		}
		if h := f.sums[e.Name()]; h != nil {
			sums[e.Name()] = text(h)
		} else if sums[e.Name()], err = checksum(filepath.Join(f.Temp(), e.Name())); err != nil {
			return err
		}
	}
	return f.WriteJSON(ChecksumFile, sums)
}

func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	if _, err := io.CopyBuffer(h, f, make([]byte, 1<<20)); err != nil {
		return "", err
	}
	return text(h), nil
}

func text(h hash.Hash32) string { return fmt.Sprintf("%08x", h.Sum32()) }

// Verify compares a file of a checkpoint with its checksum. Older checkpoints have no checksums, so
// a file without one is accepted. Read the file first: Verify does not check its type.
func Verify(dir, name string) error {
	b, err := smallfile.Read(filepath.Join(dir, ChecksumFile), smallfile.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var sums checksums
	if err == nil {
		err = json.Unmarshal(b, &sums)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", ChecksumFile, err)
	}
	want, ok := sums[name]
	if !ok {
		return nil
	}
	got, err := checksum(filepath.Join(dir, name))
	if err == nil && got != want {
		err = fmt.Errorf("%s: got checksum %s, want %s: the file changed after it was saved", name, got, want)
	}
	return err
}
