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

// A Server stores files and runs batches. It is safe for concurrent use.
type Server struct {
	off     string // why files and batches are off; "" if they are on
	dir     string // folder of the batches
	store   *store.Store
	files   *folder
	lock    *hold // nil while another process has the folder
	failed  error // why the folder cannot be read; nil if it can
	now     func() time.Time
	again   time.Duration // retryAfter, except in tests
	until   func(context.Context, time.Time, error) (context.Context, context.CancelFunc)
	ctx     context.Context // ends with Stop
	stop    context.CancelCauseFunc
	running sync.WaitGroup

	backend *Backend // nil until Begin
	places  *places

	mu      sync.Mutex
	batches map[string]*keptBatch
	last    order       // of the newest batch
	retry   *time.Timer // writes states again whose write failed; nil if there are none
	look    *time.Timer // checks whether the folder is free; nil if it was at the start
}

const (
	// maxBatches is the maximum number of batches. When a new one exceeds it, the oldest ended
	// batch is forgotten.
	maxBatches = 10_000
	// maxActive is the maximum number of batches that run or wait to run.
	maxActive = 1000
	// lookAfter is the time after which a server checks again whether another server still has the
	// folder.
	lookAfter = 2 * time.Second
)

// Off returns a server that answers all requests with a 400 and the message why.
func Off(why string) *Server { return &Server{off: why, now: time.Now} }

// NoStore is the message for clients if files and batches have no folder.
const NoStore = "Files and batches need a folder: start the server with --store DIR."

// Open returns the server of the files and batches in the folder of a store. While another process
// has them, requests are answered with a 400 that says so; when that process has stopped, the
// server takes them over. Open fails if the folder cannot be read or written. Batches run after
// Begin only.
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

// take locks and reads the folder if it has not been read. It returns errOther if another server
// has it. The caller holds s.mu.
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

// lookAgain takes the folder over if the other server has stopped.
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

// load reads the batches and files that an earlier process has left. The caller holds s.mu.
func (s *Server) load() (err error) {
	kept := s.store
	if s.files, err = openFolder(filepath.Join(kept.Folder(), "files"), kept, s.lock); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	atomicfile.RemoveStale(s.dir)
	s.files.reserve = openReserve(filepath.Join(s.dir, "spare"), kept.Limit(), s.lock)
	kept.Found(s.files.reserve.most)
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

// refresh reads the store again if it was removed and created again while the server runs. It
// returns errOther if another server has it by now.
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

// reread adds batches that another process has left. It forgets ended batches whose files were
// removed. The caller holds s.mu.
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

// Begin starts to run batches on a backend: those that have not ended, and new ones. Call it once.
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

// Stop ends the running lines, writes states of batches whose last write failed, and frees the
// folder for another process. The next process continues the batches.
func (s *Server) Stop() {
	if s == nil || s.off != "" {
		return
	}
	s.mu.Lock() // no batch starts after this
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

// save writes the state of a batch. If that fails, it is tried again later, until Stop. The caller
// holds s.mu.
func (s *Server) save(k *keptBatch) {
	err := s.files.reserve.describe(s.path(k.Batch.ID), k)
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

// saveLeft writes states whose write has failed. The caller holds s.mu.
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

// start runs a batch. The caller holds s.mu.
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

// expiry returns when the lines of a batch that starts now expire. If the clock was set back since
// the batch was created, that is at most the completion window from now. Later changes of the clock
// have no effect.
func (s *Server) expiry(k *keptBatch) time.Time {
	now := s.now()
	left := min(time.Unix(k.Batch.ExpiresAt, 0).Sub(now), windowTime)
	return now.Add(left)
}

// newID returns an id in OpenAI's form.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// find returns a batch of an owner, or nil. The caller holds s.mu.
func (s *Server) find(owner, id string) *keptBatch {
	if k := s.batches[id]; k != nil && k.Owner == owner {
		return k
	}
	return nil
}

// add stores a new batch and starts it. It returns store.ErrFull if the store is full, and fails if
// there are too many batches.
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
		_ = os.Remove(s.path(old.Batch.ID)) // if this fails, the next start finds the batch again
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

// usesInput reports whether a file is the input of a batch that has not ended, and returns that
// batch's id.
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
