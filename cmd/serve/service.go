package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/batches"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/text"
)

// A service serves the models over HTTP.
type service struct {
	fleet   *fleet
	first   *loaded // the model loaded at the start; nil if requests load all models
	batches *batches.Server
	server  *http.Server
	prompts *dispatch.KVStore // nil without --kv-store
}

func (s *service) close() {
	s.batches.Stop()
	s.fleet.models.Close()
	s.prompts.Close() // after the models, which write to it
}

// A request has the models and options that the command line requests.
type request struct {
	models  []servedModel
	eager   bool // load the first model at the start
	options dispatch.Options
	others  []otherAdapter
}

// find reads the flags and finds the models' files. On a terminal it offers to pull a model that is
// missing from the hub's cache.
func (c *runCmd) find(ctx context.Context, k *kong.Context) (request, error) {
	c.checkEnvironment()
	w, err := c.request()
	var missing *hub.MissingError
	switch term, ok := onTerminal(); {
	case errors.As(err, &missing) && ok:
		if err := offerPull(ctx, term, err); err != nil {
			return w, err
		}
		return c.request()
	case errors.Is(err, fs.ErrNotExist) && isWord(c.M) && !slices.Contains(k.Args, "run"):
		return w, unknownCommand(c.M, k.Model.Children)
	}
	return w, err
}

// request reads the flags and finds the models' files.
func (c *runCmd) request() (w request, err error) {
	if w.options, err = c.options(); err != nil {
		return w, err
	}
	if err = c.place(&w.options); err != nil {
		return w, err
	}
	w.options.Lazy = c.Lazy
	first := 0
	if w.models, first, err = c.served(c.ServedModelName); err != nil {
		return w, err
	}
	if w.eager = first > 0; !w.eager && c.Draft != "" {
		return w, cmdline.Misusef("--draft %s: got no --model, want the model whose tokens the draft guesses", c.Draft)
	}
	var names []string
	for _, m := range w.models {
		names = append(names, m.name)
	}
	w.options.Adapters, w.others, err = c.adapters(names...)
	return w, err
}

// build loads the first model, unless only --models-dir names models, and sets up HTTP. Unless Lazy
// is set, it starts to read weights in the background.
func (c *runCmd) build(ctx context.Context, w request) (*service, error) {
	prompts, err := c.kvStoreFlags.open()
	if err != nil {
		return nil, err
	}
	w.options.KVStore = prompts
	f, err := newFleet(ctx, c, w)
	if err != nil {
		prompts.Close()
		return nil, err
	}
	s := &service{fleet: f, prompts: prompts}
	o := api.Options{Catalog: f.models, Version: version, Lazy: c.Lazy, APIKeys: c.plainKeys(), Keys: c.operateFlags.keys, AdminKeys: split(c.AdminKey), LoraDir: c.LoraDir, KVStore: prompts, Access: c.access(c.Host),
		Timeouts: api.Timeouts{Stall: cmp.Or(c.ClientTimeout, -1)}}
	if o.Store, err = c.storeFlags.open(); err != nil {
		return nil, err
	}
	if s.batches, err = openBatches(o.Store); err != nil {
		return nil, err
	}
	o.Batches, o.Backend = s.batches, c.backend
	var m *generate.Model
	if w.eager {
		if s.first, err = f.loadFirst(ctx); err != nil {
			s.close()
			if refused(err) {
				err = cmdline.Misuse(err)
			}
			return nil, err
		}
		m = s.first.generator
	} else {
		o.Requests = api.RequestMemory{Bytes: dispatch.RequestMemory(f.limitNow()), Count: f.ledger.CountRequests, Notify: f.notifyRequests}
	}
	s.server = api.NewServer(m, o)
	return s, nil
}

// loaded is a loaded model.
type loaded struct {
	name       string
	checkpoint *loader.Checkpoint
	model      *dispatch.Model
	generator  *generate.Model
	report     *reporter
	drafter    *drafter        // nil if there is none
	selfNeeds  float64         // of a self-draft, see generate.Options.DraftNeeds; 0 without one
	dropSelf   func(l *loaded) // closes it
	share      int64           // of memory, while another model needs the rest; 0 for the whole plan
	adapters   int64           // memory for adapters on demand, shared by all models
}

func (l *loaded) close() {
	if l.report != nil {
		l.report.close()
	}
	if l.generator != nil {
		l.generator.Close()
	}
	l.drafter.close()
	if l.model != nil {
		l.model.Close()
	}
	_ = l.checkpoint.Close() // opened for reading only
}

// A draft is a model whose headers and text have been read but that has not been planned yet.
type draft struct {
	name       string
	skeleton   *meta.Model
	planner    *dispatch.Planner // for skeleton
	checkpoint *loader.Checkpoint
	options    dispatch.Options
	words      func() (generate.Text, error) // waits until they are read
	drafter    *drafter
	self       *dispatch.SelfDraft // nil without --draft self, or if declined
	offered    *dispatch.SelfDraft // even if declined
	dropSelf   func(l *loaded)
}

// open reads config and headers of a model, and starts to read its text. The caller must bind the
// draft or close its checkpoint.
func (c *runCmd) open(m servedModel, options dispatch.Options) (*draft, error) {
	read := make(chan error, 1)
	var words generate.Text
	go func() { // concurrently with the headers, because a large vocabulary takes as long
		var err error
		words, err = generate.ReadText(m.source.where(), m.source.files)
		read <- err
	}()
	skeleton, checkpoint, err := m.source.open()
	if err != nil {
		return nil, err
	}
	d := &draft{name: m.name, skeleton: skeleton, planner: dispatch.NewPlanner(skeleton), checkpoint: checkpoint, options: options}
	d.words = func() (generate.Text, error) { err := <-read; return words, err }
	if err := c.applyDtype(skeleton, &d.options); err != nil {
		_ = checkpoint.Close() // the first error is more useful
		return nil, err
	}
	useKept(c.CacheDir, skeleton, &d.options)
	d.options = d.options.KnownCoding(skeleton, checkpoint)
	return d, nil
}

// bind makes a model from a planned draft and starts its engine. ctx is the context of background
// work.
func (c *runCmd) bind(ctx context.Context, d *draft, plan devicemap.Plan, options dispatch.Options) (*loaded, error) {
	l := &loaded{name: d.name, checkpoint: d.checkpoint, drafter: d.drafter, adapters: options.AdapterMemory}
	err := checkDevices(plan)
	if err == nil {
		warnPlan(plan)
		noteCoding(d, plan, options)
		options.DeviceLost = c.deviceLost
		d.checkpoint.KeepHashes(measurementsDir(c.CacheDir))
		l.model, err = dispatch.New(d.skeleton, d.checkpoint, plan.Map, options)
	}
	var words generate.Text
	if err == nil {
		l.model.TuneReads(ctx, measurementsDir(c.CacheDir))
		l.model.KeepRouting(measurementsDir(c.CacheDir), func(err error) {
			slog.Warn("the routing of experts could not be saved for later plans: " + err.Error())
		})
		l.model.Warm(ctx) // within the memory that is left
		words, err = d.words()
	}
	if err == nil {
		warnText(words, l.name)
		if d.self != nil {
			if d.self.OnDisk {
				l.selfNeeds, l.dropSelf = d.self.Needs(), d.dropSelf
			}
			err = l.openSelf(ctx, d.self, words)
		}
	}
	if err == nil {
		l.generator, err = c.generator(l, words, options.MaxSequences)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	warnUnexpected(l.model)
	if c.Draft == "" {
		noteModules(d)
	}
	l.report = newReporter(l, plan, besideDraft(d.options, plan, d.self))
	l.report.report.SelfDraft, l.report.report.FitsWith = d.offered, fitBeside(d.planner, l.report.asked, plan, d.self)
	l.report.report.KVTokens = options.KVTokens // no request reads it yet
	noteStreaming(l.name, l.report.report)
	return l, nil
}

// noteCoding logs that weights are coded, or what coding them would save.
func noteCoding(d *draft, plan devicemap.Plan, options dispatch.Options) {
	size := devicemap.FormatSize
	if c := dispatch.CodingOf(d.skeleton, &plan, &options); c != nil {
		slog.Info("weights are coded in fewer bytes, with the same answers", "stored", size(c.PlainBytes), "coded", size(c.Bytes))
	} else if d.self != nil {
		return // it borrows no coded weights
	} else if c, ok := d.planner.CodedInstead(d.options, plan); ok {
		slog.Info("--compress exact would read less from the disk, with the same answers", "token_reads", size(plan.DiskBytesPerToken),
			"coded_token_reads", size(c.Plan.DiskBytesPerToken), "kept_in_cache_dir", size(c.KeptBytes))
	}
}

// generator joins the model and its text, for the given number of sequences at once. It starts the
// engine.
func (c *runCmd) generator(l *loaded, words generate.Text, sequences int) (*generate.Model, error) {
	guesses, err := c.draftTokens()
	if err != nil {
		return nil, err
	}
	o := generate.Options{Name: l.name, Text: &words, MaxBatch: sequences, MaxQueue: queue(c.MaxQueue),
		DraftTokens: guesses, ToolCallParser: c.ToolCallParser, ReasoningParser: c.ReasoningParser}
	if l.drafter != nil {
		if o.Draft, o.DraftNext = l.drafter.models[0], l.drafter.models[1:]; words.Tokenizer != nil {
			if err := words.SameTokens(l.drafter.words); err != nil {
				return nil, cmdline.Misusef("--draft %s: %w", c.Draft, err)
			}
		}
		o.DraftNeeds = l.selfNeeds
		o.DraftFailed = func(err error) {
			slog.Warn("the draft model failed: answers continue without its guesses", "reason", err)
			if l.selfNeeds > 0 {
				l.dropSelf(l)
			}
		}
	}
	m, err := generate.New(l.model, o)
	if err != nil {
		return nil, err
	}
	if m.Chat != nil && m.Chat.UnreadCalls() {
		slog.Warn("tool calls are not parsed and stay in the content: the chat template has an unknown notation; name one with --tool-call-parser",
			"model", l.name, "known", strings.Join(text.ParserNames(), ", "))
	}
	return m, nil
}
