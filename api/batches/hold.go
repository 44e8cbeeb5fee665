package batches

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/filelock"
)

// A hold is the lock of a store's files and batches, which one server has. It is safe for concurrent use.
type hold struct {
	path string
	mu   sync.Mutex
	file *os.File
	anew bool // it was taken again, and what is in the store has not been read since
}

// otherServer says that another server has the files and batches.
const otherServer = "Another server has the files and batches of this folder: stop it, or start this one with another --store DIR."

var errOther = wire.Invalidf("", otherServer)

// takeHold locks the file at path. It fails with errOther if another server has it.
func takeHold(path string) (*hold, error) {
	f, err := filelock.Open(path, filelock.Try)
	if errors.Is(err, filelock.ErrLocked) {
		return nil, errOther
	}
	if err != nil {
		return nil, fmt.Errorf("batches: %w", err)
	}
	return &hold{path: path, file: f}, nil
}

// ready makes the folder of a file that will be written, if the store was removed while the server runs, and takes the
// lock again then. It fails with errOther if another server has the store by now.
func (h *hold) ready(path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.again(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	return nil
}

// again takes the lock again if the store was removed. h.mu is held.
func (h *hold) again() error {
	if filelock.IsAt(h.file, h.path) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	again, err := takeHold(h.path)
	if err != nil {
		return err
	}
	_ = h.file.Close() // of a file that was removed
	h.file, h.anew = again.file, true
	return nil
}

// renewed reports whether the lock was taken again since the last call: other servers may have changed the store
// meanwhile. It fails with errOther if another server has the store by now.
func (h *hold) renewed() (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.again()
	anew := h.anew
	h.anew = false
	return anew, err
}

// free lets another server have the store.
func (h *hold) free() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.file.Close() // nothing was written
}
