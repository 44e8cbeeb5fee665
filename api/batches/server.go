package batches

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/internal/atomicfile"
)

// A Server keeps files and runs batches. Its methods are safe for concurrent use.
type Server struct {
	off     string // why there are no files and batches; "" if there are
	dir     string // of the batches
	store   *store.Store
	files   *folder
	lock    *hold // nil while another process has the folder
	failed  error // why the folder cannot be read
	now     func() time.Time
	again   time.Duration // retryAfter
	until   func(context.Context, time.Time, error) (context.Context, context.CancelFunc)
	ctx     context.Context // ends with Stop
	stop    context.CancelCauseFunc
	running sync.WaitGroup

	backend *Backend // nil until Begin
	places  *places

	mu      sync.Mutex
	batches map[string]*keptBatch
	last    order       // of all batches so far
	retry   *time.Timer // writes states again that were not kept; nil if there are none
	look    *time.Timer // looks whether the folder is free; nil if it was at the start
}

const (
	// maxBatches is how many batches are known. The oldest that have ended are forgotten for new ones.
	maxBatches = 10_000
	// maxActive is how many batches may run or wait to run.
	maxActive = 1000
	// lookAfter is how often a server looks whether another one still has the folder.
	lookAfter = 2 * time.Second
)

// Off returns a server that answers all requests with a 400 that says why.
func Off(why string) *Server { return &Server{off: why, now: time.Now} }

// NoStore says that files and batches need a folder.
const NoStore = "Files and batches need a folder: start the server with --store DIR."

// Open returns the files and batches in the folder of a store. While another process has them, their
// requests are answered with a 400 that says so; when that has stopped, the server takes them over. Open fails if the folder
// cannot be read or written. No batch runs before Begin.
func Open(s *store.Store) (*Server, error) {
	if s == nil || s.InMemory() {
		return Off(NoStore), nil
	}
	b := &Server{store: s, dir: filepath.Join(s.Folder(), "batches"), now: time.Now, again: retryAfter, until: context.WithDeadlineCause, batches: map[string]*keptBatch{}}
	b.ctx, b.stop = context.WithCancelCause(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	switch err := b.take(); {
	case err == nil:
		return b, nil
	case !errors.Is(err, errOther):
		return nil, err
	}
	slog.Warn("batches: another server has the files and batches of the folder; they are taken over when it stops", "store", s.Folder())
	b.look = time.AfterFunc(lookAfter, b.lookAgain)
	return b, nil
}

// take reads the folder if it has not been read and no other server has it; else it fails with errOther. s.mu is held.
func (s *Server) take() error {
	if s.lock != nil || s.failed != nil {
		return s.failed
	}
	lock, err := takeHold(filepath.Join(s.store.Folder(), "batches.lock"))
	if err != nil {
		return err
	}
	s.lock = lock
	if s.failed = s.load(); s.failed != nil {
		lock.free()
		s.lock = nil
	}
	return s.failed
}

// lookAgain takes the folder over from a server that has stopped.
func (s *Server) lookAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || s.lock != nil {
		return
	}
	switch err := s.take(); {
	case err == nil:
		slog.Info("batches: the other server has stopped; its files and batches are taken over", "store", s.store.Folder())
	case errors.Is(err, errOther):
		s.look.Reset(lookAfter)
	default:
		slog.Error("batches: the files and batches of another server cannot be taken over", "store", s.store.Folder(), "reason", err)
	}
}

// load reads what an earlier process has left. s.mu is held.
func (s *Server) load() (err error) {
	kept := s.store
	if s.files, err = openFolder(filepath.Join(kept.Folder(), "files"), kept, s.lock); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	atomicfile.RemoveStale(s.dir)
	s.files.spare = openSpare(filepath.Join(s.dir, "spare"), kept.Limit(), s.lock)
	kept.Found(s.files.spare.most)
	if err := s.reread(); err != nil {
		return err
	}
	used := map[string]bool{}
	for _, k := range s.batches {
		if !ended(k.Batch.Status) {
			used[k.OutputID], used[k.ErrorID] = true, true
		}
	}
	s.files.removeOthers(used)
	return nil
}

// refresh reads the store again if it was removed and made again while the server runs. It fails with errOther if another server has
// it by now.
func (s *Server) refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.take(); err != nil {
		return err
	}
	switch renewed, err := s.lock.renewed(); {
	case err != nil || !renewed:
		return err
	}
	slog.Warn("batches: the store was removed and made again; it is read again", "store", s.files.store.Folder())
	if err := s.files.reread(); err != nil {
		return err
	}
	return s.reread()
}

// reread adds the batches that another process has left, and forgets those that have ended and are gone. s.mu is held.
func (s *Server) reread() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	there := map[string]bool{}
	err := eachDescription(s.dir, func(path string, b []byte) error {
		var k keptBatch
		if err := json.Unmarshal(b, &k); err != nil {
			return err
		}
		if !batchID.MatchString(k.Batch.ID) || path != s.path(k.Batch.ID) || !fileID.MatchString(k.OutputID) || !fileID.MatchString(k.ErrorID) {
			return errors.New("it has another name")
		}
		there[k.Batch.ID] = true
		s.last = max(s.last, k.Order)
		if s.batches[k.Batch.ID] != nil {
			return nil
		}
		s.batches[k.Batch.ID] = &k
		s.files.store.Found(descriptionBytes)
		if s.backend != nil && !ended(k.Batch.Status) {
			s.start(&k)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id, k := range s.batches {
		if !there[id] && ended(k.Batch.Status) && !k.unsaved {
			delete(s.batches, id)
			s.files.store.Found(-descriptionBytes)
		}
	}
	return nil
}

// Begin runs the batches that have not ended, and new ones, on a backend. It is called once.
func (s *Server) Begin(b Backend) {
	if s.off != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backend != nil {
		return
	}
	s.backend, s.places = &b, newPlaces(&b)
	var left []*keptBatch
	for _, k := range s.batches {
		if !ended(k.Batch.Status) {
			left = append(left, k)
		}
	}
	slices.SortFunc(left, func(a, b *keptBatch) int { return cmp.Compare(a.Order, b.Order) })
	for _, k := range left {
		slog.Info("batches: continuing a batch of an earlier process", "batch", k.Batch.ID, "status", k.Batch.Status)
		s.start(k)
	}
}

// Stop ends the lines that run, and frees the folder for another process. Batches continue in the next one. States of
// batches that could not be kept are written once more.
func (s *Server) Stop() {
	if s == nil || s.off != "" {
		return
	}
	s.mu.Lock() // no batch starts from here on
	s.stop(errStopped)
	s.mu.Unlock()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.look != nil {
		s.look.Stop()
	}
	s.saveLeft()
	if s.lock != nil {
		s.lock.free()
	}
}

// save keeps the state of a batch. If it cannot be written, it is written again later, until Stop. s.mu is held.
func (s *Server) save(k *keptBatch) {
	err := s.files.spare.describe(s.path(k.Batch.ID), k)
	if err != nil && !k.unsaved {
		slog.Error("batches: the state of a batch was not kept; it is tried again until the server stops", "batch", k.Batch.ID, "status", k.Batch.Status, "reason", err)
	}
	k.unsaved = err != nil
	if k.unsaved && s.retry == nil && s.ctx.Err() == nil {
		s.retry = time.AfterFunc(s.again, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.ctx.Err() == nil {
				s.saveLeft()
			}
		})
	}
}

// saveLeft writes the states that were not kept. s.mu is held.
func (s *Server) saveLeft() {
	if s.retry != nil {
		s.retry.Stop()
		s.retry = nil
	}
	for _, k := range s.batches {
		if k.unsaved {
			s.save(k)
		}
	}
}

// start runs a batch. s.mu is held.
func (s *Server) start(k *keptBatch) {
	if s.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	k.cancel = cancel
	if k.Batch.Status == cancelling {
		cancel(errCancelled)
	}
	s.running.Go(func() {
		defer cancel(nil)
		end, free := s.until(ctx, s.expiry(k), errExpired)
		defer free()
		s.process(end, k)
	})
}

// expiry is when the lines of a batch that starts now expire. A clock that was set back since the batch was made keeps it
// no longer than its window. Later changes of the clock have no effect.
func (s *Server) expiry(k *keptBatch) time.Time {
	now := s.now()
	left := min(time.Unix(k.Batch.ExpiresAt, 0).Sub(now), windowTime)
	return now.Add(left)
}

// newID is an id like those of OpenAI.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// find returns a batch of an owner, nil if there is none. s.mu is held.
func (s *Server) find(owner, id string) *keptBatch {
	if k := s.batches[id]; k != nil && k.Owner == owner {
		return k
	}
	return nil
}

// add keeps a new batch and starts it. It fails with store.ErrFull, or if there are too many.
func (s *Server) add(k *keptBatch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var over []*keptBatch
	active := 0
	for _, other := range s.batches {
		if ended(other.Batch.Status) {
			over = append(over, other)
		} else {
			active++
		}
	}
	if active >= maxActive {
		return errManyBatches
	}
	slices.SortFunc(over, func(a, b *keptBatch) int { return cmp.Compare(a.Order, b.Order) })
	for _, old := range over[:max(0, min(len(over), len(s.batches)+1-maxBatches))] {
		_ = os.Remove(s.path(old.Batch.ID)) // or it is known again after the next start
		delete(s.batches, old.Batch.ID)
		s.files.store.Found(-descriptionBytes)
	}
	if err := s.files.store.Reserve(descriptionBytes); err != nil {
		return err
	}
	k.Order.follow(&s.last)
	if err := s.lock.describe(s.path(k.Batch.ID), k); err != nil {
		s.files.store.Found(-descriptionBytes)
		return err
	}
	s.batches[k.Batch.ID] = k
	if s.backend != nil {
		s.start(k)
	}
	return nil
}

var errManyBatches = fmt.Errorf("batches: %d batches run or wait, which is the most", maxActive)

// usesInput reports whether a file is the input of a batch that has not ended, and of which.
func (s *Server) usesInput(id string) (batch string, used bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.batches {
		if k.Batch.Input == id && !ended(k.Batch.Status) {
			return k.Batch.ID, true
		}
	}
	return "", false
}
