package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
)

// A source has a model's files: a folder on disk, or the embedded demo.
type source struct {
	name   string // of the model
	files  fs.FS
	folder string // of the files, for messages; "" for the demo
	path   string // the argument of loader.Open; "" for the demo
}

// newSource finds the files of the model that the user named.
func newSource(path string) (source, error) {
	if path == "" {
		return source{name: demo.Name, files: demo.Files()}, nil
	}
	path, err := hub.Local(path)
	if err != nil {
		return source{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return source{}, err
	}
	folder := path
	if info.IsDir() {
		if folder, err = loader.Folder(path); err != nil {
			return source{}, err
		}
	} else {
		folder = filepath.Dir(path)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return source{}, err
	}
	files, name, err := loader.Files(path)
	if err != nil {
		return source{}, err
	}
	return source{name: cmp.Or(name, modelName(absolute, info.IsDir())), files: files, folder: folder, path: path}, nil
}

// modelName returns the folder's name or, in a hub cache, ORG/NAME.
func modelName(path string, dir bool) string {
	for p := path; p != filepath.Dir(p); p = filepath.Dir(p) {
		if rest, ok := strings.CutPrefix(filepath.Base(p), "models--"); ok {
			return strings.ReplaceAll(rest, "--", "/")
		}
	}
	if !dir {
		path = filepath.Dir(path)
	}
	return filepath.Base(path)
}

func (s source) config() (*meta.Config, error) {
	config, err := meta.ReadConfigFS(s.files)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.withoutConfig()
	}
	return config, err
}

// withoutConfig returns the error for a model without config.json. If the file is of an unsupported
// kind, the error says so instead.
func (s source) withoutConfig() error {
	if s.path != s.folder {
		checkpoint, err := s.checkpoint()
		if err != nil {
			return err
		}
		_ = checkpoint.Close() // opened for reading only
	}
	return errors.New("config.json is missing: use the model's whole folder, as published on the hub")
}

// where returns the folder or file, for messages.
func (s source) where() string { return cmp.Or(s.path, s.name) }

func (s source) checkpoint() (*loader.Checkpoint, error) {
	if s.path == "" {
		return loader.OpenFS(s.name, s.files)
	}
	return loader.Open(s.path)
}

// open reads config and headers and builds the skeleton. It reads no weights. The caller closes the
// checkpoint.
func (s source) open() (*meta.Model, *loader.Checkpoint, error) {
	config, err := s.config()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.where(), err)
	}
	checkpoint, err := s.checkpoint()
	if err != nil {
		return nil, nil, err
	}
	skeleton, err := meta.New(config, checkpoint)
	if err != nil {
		_ = checkpoint.Close() // the first error is more useful
		return nil, nil, fmt.Errorf("%s: %w", s.where(), err)
	}
	return skeleton, checkpoint, nil
}

// warnText logs the features that the model called name lacks.
func warnText(t generate.Text, name string) {
	if t.Tokenizer == nil {
		slog.Warn("no tokenizer.json: prompts are token ids", "model", name, "reason", t.Missing)
	}
	if err := t.Chat.Err(); err != nil {
		slog.Warn("a chat template cannot be used", "model", name, "reason", err)
	}
	if t.Pooling.Unsupported != "" {
		slog.Warn("no embeddings", "model", name, "reason", t.Pooling.Unsupported)
	}
}

// warnUnexpected logs the tensors that the skeleton does not use, in one line.
func warnUnexpected(m *dispatch.Model) {
	if others := m.Others(); others.Tensors > 0 {
		slog.Info("the model serves text: tensors of its other parts, such as a vision tower, are not read",
			"count", others.Tensors, "size", devicemap.FormatSize(others.Bytes))
	}
	names := m.Unexpected()
	if len(names) == 0 {
		return
	}
	shown := names[:min(len(names), 5)]
	slog.Warn("the checkpoint has tensors that this architecture does not use", "count", len(names), "first", shown)
}
