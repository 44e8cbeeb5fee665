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

// A hold is the lock of a store's files and batches. One server at a time has it. It is safe for
// concurrent use.
type hold struct {
	path string
	mu   sync.Mutex
	file *os.File
	anew bool // the lock was taken again, and the store has not been read since
}

// otherServer is the message for clients while another server has the files and batches.
const otherServer = "Another server has the files and batches of this folder: stop it, or start this one with another --store DIR."

var errOther = wire.Invalidf("", otherServer)

// takeHold locks the file at path. It returns errOther if another server has the lock.
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

// ready prepares writing to path. If the store was removed while the server runs, it creates the
// folder again and takes the lock again. It returns errOther if another server has the lock by
// then.
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

// again takes the lock again if the store was removed. The caller holds h.mu.
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
	_ = h.file.Close() // the file was removed
	h.file, h.anew = again.file, true
	return nil
}

// renewed reports whether the lock was taken again since the last call. Other servers may then have
// changed the store. It returns errOther if another server has the lock by now.
func (h *hold) renewed() (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.again()
	anew := h.anew
	h.anew = false
	return anew, err
}

// free releases the lock.
func (h *hold) free() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.file.Close() // nothing was written
}
