package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
)

// suffix is the suffix of the store's files. The store ignores other files in the folder.
const suffix = ".object"

// magic starts each file. The hash of the value and its length follow, in hexadecimal, and then the
// value.
const (
	magic       = "heft store 1 "
	headerBytes = len(magic) + 2*sha256.Size + 1 + 16 + 1
)

// Open returns the store of a folder, and creates the folder if it does not exist. The store has
// the objects of earlier processes, up to the limit. A damaged file is skipped with a line in the
// log. Open fails if the folder cannot be read or written.
func Open(dir string, limit int64) (*Store, error) {
	s := NewMemory(limit, nil)
	s.dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	f, err := atomicfile.Create(filepath.Join(dir, "try"+suffix))
	if err != nil {
		return nil, fmt.Errorf("store: %s cannot be written: %w", dir, err)
	}
	f.Discard()
	folders, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	var all []found
	for _, folder := range folders {
		if len(folder.Name()) != folderDigits || !folder.IsDir() {
			continue
		}
		files, err := s.files(filepath.Join(dir, folder.Name()))
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		all = append(all, files...)
	}
	slices.SortFunc(all, func(a, b found) int { return a.used.Compare(b.used) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range all {
		s.add(f.object)
	}
	s.shrink()
	return s, nil
}

// found is an object that an earlier process wrote.
type found struct {
	*object
	used time.Time
}

// files returns the complete files of a folder. It removes temporary files of killed processes.
func (s *Store) files(folder string) (all []found, err error) {
	atomicfile.RemoveStale(folder)
	files, err := os.ReadDir(folder)
	for _, f := range files {
		k, ok := keyOfName(f.Name())
		path := filepath.Join(folder, f.Name())
		if !ok || path != s.path(k) {
			continue
		}
		info, err := f.Info()
		if err == nil {
			err = checkHeader(path, info.Size())
		}
		if err != nil {
			skip(path, err)
			continue
		}
		used := info.ModTime()
		if time.Until(used) > time.Minute { // from before the clock was set back: what is used now is younger
			used = time.Time{}
		}
		all = append(all, found{&object{key: k, size: s.cost(int(info.Size()) - headerBytes)}, used})
	}
	return all, err
}

func skip(path string, why error) {
	slog.Warn("store: skipping a damaged file", "path", path, "reason", why)
}

// folderDigits is the number of digits of a file's name that choose its folder, so that folders
// stay small.
const folderDigits = 2

func (s *Store) path(k key) string {
	name := hex.EncodeToString(k[:])
	return filepath.Join(s.dir, name[:folderDigits], name+suffix)
}

func keyOfName(name string) (k key, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 2*len(k) {
		return k, false
	}
	_, err := hex.Decode(k[:], []byte(digits))
	return k, err == nil
}

func (s *Store) write(k key, value []byte) error {
	path := s.path(k)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer f.Discard()
	err = f.Chmod(0o600) // conversations are readable by their owner only
	if err == nil {
		_, err = f.Write(header(value))
	}
	if err == nil {
		_, err = f.Write(value)
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

func header(value []byte) []byte {
	return fmt.Appendf(nil, "%s%x %016x\n", magic, sha256.Sum256(value), len(value))
}

// lengthOf parses a header.
func lengthOf(head []byte) (n int64, sum []byte, err error) {
	if len(head) != headerBytes || !bytes.HasPrefix(head, []byte(magic)) {
		return 0, nil, errors.New("it has no header")
	}
	sum = make([]byte, sha256.Size)
	rest := head[len(magic):]
	if _, err := hex.Decode(sum, rest[:2*sha256.Size]); err != nil {
		return 0, nil, errors.New("its header has no hash")
	}
	if _, err := fmt.Sscanf(string(rest[2*sha256.Size:]), " %016x\n", &n); err != nil {
		return 0, nil, errors.New("its header has no length")
	}
	return n, sum, nil
}

// checkHeader checks a file's size against its header.
func checkHeader(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, _, err = readHeader(f, size)
	return err
}

// readHeader reads a header, and returns the length and the hash of the value. size is the size of
// the file.
func readHeader(f io.Reader, size int64) (n int64, sum []byte, err error) {
	head := make([]byte, headerBytes)
	if _, err := io.ReadFull(f, head); err != nil {
		return 0, nil, errors.New("it is shorter than its header")
	}
	n, sum, err = lengthOf(head)
	if err == nil && n+int64(headerBytes) != size {
		err = fmt.Errorf("it has %d bytes, want %d", size, n+int64(headerBytes))
	}
	return n, sum, err
}

func (s *Store) read(k key, reserve func(int) error) ([]byte, error) {
	path := s.path(k)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	n, sum, err := readHeader(f, info.Size())
	if err != nil {
		skip(path, err)
		return nil, ErrNotFound
	}
	if reserve != nil {
		if err := reserve(int(n)); err != nil {
			return nil, err
		}
	}
	value := make([]byte, n)
	if _, err := io.ReadFull(f, value); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if got := sha256.Sum256(value); !bytes.Equal(got[:], sum) {
		skip(path, errors.New("its hash is wrong"))
		return nil, ErrNotFound
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // the order of use, for the next process
	return value, nil
}

func (s *Store) remove(k key) error {
	switch err := os.Remove(s.path(k)); {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case err != nil:
		return fmt.Errorf("store: %w", err)
	}
	return nil
}
