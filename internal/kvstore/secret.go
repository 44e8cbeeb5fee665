package kvstore

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/filelock"
)

// secretWait is how long Open waits while another process creates the secret.
const secretWait = 10 * time.Second

// findSecret reads the secret of the folder, or creates it. Processes that start together find the same
// one: it is created under the lock.
func (s *Store) findSecret() error {
	path := filepath.Join(s.dir, secretName)
	err := s.readSecret(path)
	for waited := time.Duration(0); err != nil && waited < secretWait; waited += lockPause {
		var lock *os.File
		if lock, err = openLock(filepath.Join(s.dir, lockName)); errors.Is(err, filelock.ErrLocked) {
			time.Sleep(lockPause)
			if err = s.readSecret(path); err == nil {
				return nil
			}
			continue
		} else if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("kvstore: %w", err)
		}
		if err = s.readSecret(path); err != nil {
			err = s.createSecret(path, err)
		}
		if lock != nil {
			_ = lock.Close() // nothing was written
		}
		return err
	}
	return err
}

// readSecret reads the secret. It makes the file readable for its owner alone.
func (s *Store) readSecret(path string) error {
	f, err := openRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != sha256.Size) {
		err = fmt.Errorf("kvstore: %s is damaged", path)
	}
	if err == nil && checksModes && info.Mode().Perm() != 0o600 {
		err = f.Chmod(0o600)
	}
	if err == nil {
		_, err = io.ReadFull(f, s.secret[:])
	}
	return err
}

// createSecret writes a new secret. Values under another one cannot be read any more. why is the reason
// why the present one was not read.
func (s *Store) createSecret(path string, why error) error {
	if !errors.Is(why, fs.ErrNotExist) {
		s.options.Warn("the secret of the KV store cannot be read: a new one is made, and what was stored is not used", "reason", why)
	}
	_, _ = rand.Read(s.secret[:]) // never fails
	return s.writeSecret()
}

func (s *Store) writeSecret() error {
	err := atomicfile.Publish(filepath.Join(s.dir, secretName), 0o600, func(w io.Writer) error {
		_, err := w.Write(s.secret[:])
		return err
	})
	if err != nil {
		return fmt.Errorf("kvstore: %w", err)
	}
	return nil
}
