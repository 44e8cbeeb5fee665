package tune

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/smallfile"
)

// version is the version of the files and of the kernels' patterns. Reports of another version
// are measured again.
const version = 8

// mostBytes limits the bytes read from a file, which has some 20 KiB.
const mostBytes = 64 << 10

// A stored is the content of a file.
type stored struct {
	Version int `json:"version"`
	Key
	Report
	Measured []measurement `json:"measured"` // the measurements that the report is made of
}

// A Store keeps reports in a directory, which it creates when needed. If Folder is empty it keeps
// none. Processes may share the directory: files are replaced atomically.
type Store struct {
	Folder string
	// Log receives a record for each file that cannot be used or written; nil means slog.Default.
	Log *slog.Logger
}

// DefaultFolder returns the directory in which Heft's programs keep measurements of the machine:
// heft in the user's cache directory, or "" if the user has none.
func DefaultFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "heft")
}

func (s *Store) log() *slog.Logger {
	if s.Log == nil {
		return slog.Default()
	}
	return s.Log
}

// Load returns the report of a key. It returns nil if there is none or its file is unusable or of
// another version. It logs unusable files.
func (s *Store) Load(k Key) *Report {
	if s.Folder == "" {
		return nil
	}
	path := filepath.Join(s.Folder, k.file())
	report, err := load(path, k)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log().Warn("the stored fetch plan cannot be used; measuring again", "file", path, "error", err)
		return nil
	}
	return report
}

func load(path string, k Key) (*Report, error) {
	data, err := smallfile.Read(path, mostBytes)
	if err != nil {
		return nil, err
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if head.Version != version {
		return nil, fs.ErrNotExist // written by another version of Heft
	}
	var in stored
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, err
	}
	if in.Key != k {
		return nil, fmt.Errorf("got a plan for %+v, want one for %+v", in.Key, k)
	}
	if n := len(in.Measured); n == 0 || n > settled {
		return nil, fmt.Errorf("got %d measurements, want 1 to %d", n, settled)
	}
	in.measured = in.Measured
	return &in.Report, nil
}

// Save stores the report of a key.
func (s *Store) Save(k Key, r *Report) error {
	if s.Folder == "" {
		return nil
	}
	if err := os.MkdirAll(s.Folder, 0o755); err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	text, err := json.MarshalIndent(stored{version, k, *r, r.measured}, "", " ")
	if err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	if err := atomicfile.WriteFile(filepath.Join(s.Folder, k.file()), append(text, '\n')); err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	return nil
}

// Remeasure makes enough measurements for a final plan, replaces the stored ones and stores the
// report. A report that cannot be stored is logged and used.
func (s *Store) Remeasure(ctx context.Context, o Options) (r *Report, err error) {
	for range settled {
		if r, err = s.measure(ctx, o, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// measure adds one measurement to those of before, which may be nil, stores the report and
// applies its plan.
func (s *Store) measure(ctx context.Context, o Options, before *Report) (*Report, error) {
	k := o.key()
	o.Usual = fetch.Default(k.Vendor)
	next, err := Measure(ctx, o)
	if err != nil {
		return nil, err
	}
	r := before.with(next, o.Usual)
	fetch.Use(r.Plan)
	s.keep(k, r)
	return r, nil
}

func (s *Store) keep(k Key, r *Report) {
	if err := s.Save(k, r); err != nil {
		s.log().Warn("the fetch plan cannot be kept; the next start measures again", "error", err)
	}
}

// known holds the reports that this process has used, by key. The process therefore measures only
// once even if nothing is stored.
var known struct {
	sync.Mutex
	reports map[Key]*Report
}

// Ensure applies the plan of this machine to the process before it returns. It takes the plan of
// an earlier Ensure of this process, or else the stored one. If that has too few measurements,
// Ensure measures for about Budget, adds the result and stores it. If nothing is stored and
// nothing can be measured, or ctx ends, the vendor's default stays and Ensure returns nil.
// Concurrent calls measure once.
func (s *Store) Ensure(ctx context.Context, o Options) *Report {
	known.Lock()
	defer known.Unlock()
	k := o.key()
	r := s.Load(k)
	switch found := known.reports[k]; {
	case r == nil && found != nil:
		r = found
		s.keep(k, r)
	case found == nil:
		r = s.improved(ctx, o, r)
	}
	if r == nil {
		return nil
	}
	if known.reports == nil {
		known.reports = map[Key]*Report{}
	}
	known.reports[k] = r
	fetch.Use(r.Plan)
	return r
}

// found returns the report of a key that this process has used, or nil.
func found(k Key) *Report {
	known.Lock()
	defer known.Unlock()
	return known.reports[k]
}

// improved returns before, or the vendor's default if before is nil, with one more measurement
// unless before is settled. It returns nil if the default stays.
func (s *Store) improved(ctx context.Context, o Options, before *Report) *Report {
	s.use(before, o)
	if o.StoredOnly || before != nil && before.settled() {
		return before
	}
	r, err := s.measure(ctx, o, before)
	switch {
	case err == nil:
		s.log().Debug("measured how weights are read fastest", "processor", o.key().Processor, "threads", o.key().Threads, "starts", len(r.measured), "plan", r.Plan)
		return r
	case !errors.Is(err, ErrUnable) && ctx.Err() == nil:
		s.log().Warn("cannot measure how weights are read fastest; the plan stays", "error", err)
	}
	return before
}

// use applies the plan of r, or the vendor's default if r is nil, to the process.
func (s *Store) use(r *Report, o Options) {
	plan := fetch.Default(o.key().Vendor)
	if r != nil {
		plan = r.Plan
	}
	fetch.Use(plan)
}

// Start applies the plan of this machine to the process without delay: the stored one, or else
// the vendor's default. If the stored plan has too few measurements, a measurement in the
// background then improves it, unless Ensure has already measured and stored one in this process.
// The channel is closed when the measurement is done, or at once if there is none.
func (s *Store) Start(ctx context.Context, o Options) <-chan struct{} {
	done := make(chan struct{})
	stored, before := s.Load(o.key()), found(o.key())
	r := stored
	if r == nil {
		r = before
	}
	s.use(r, o)
	if o.StoredOnly || r != nil && r.settled() || stored != nil && before != nil {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		s.improved(ctx, o, r)
	}()
	return done
}

func (o *Options) key() Key {
	if o.fixed != nil {
		return *o.fixed
	}
	return KeyOf(o.Variant, o.Threads)
}
