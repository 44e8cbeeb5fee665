package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// hubClient is a client for the hub and the cache that the environment names.
func hubClient(connections int) (*hub.Client, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	config, err := hub.Environment(os.Getenv, home)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "heft/" + version
	config.Proxy = http.ProxyFromEnvironment
	config.Connections = connections
	return hub.New(config)
}

// An unpulledError reports a hub's model that is not in the cache. Only serve pull and a yes on
// a terminal fetch it.
type unpulledError struct {
	repo     hub.Repo
	revision string // empty: main
	err      error
}

// model is ORG/NAME or ORG/NAME@REVISION.
func (e *unpulledError) model() string {
	if e.revision == "" {
		return e.repo.String()
	}
	return e.repo.String() + "@" + e.revision
}

func (e *unpulledError) Error() string {
	return fmt.Sprintf("there is no folder %s, and the model is not in the cache; fetch it with: serve pull %[1]s (%v)", e.model(), e.err)
}

func (e *unpulledError) Unwrap() error { return e.err }

// namesHub reports whether what is no path here has the form ORG/NAME or
// ORG/NAME@REVISION.
func namesHub(model string) bool {
	name, _, _ := strings.Cut(model, "@")
	return strings.Count(name, "/") == 1 && !strings.HasPrefix(name, ".")
}

// pulled is the folder of a model ORG/NAME, NAME or ORG/NAME@REVISION in the hub's cache.
func pulled(model string) (string, error) {
	repo, revision, err := hub.ParseRepo(model)
	if err != nil {
		return "", fmt.Errorf("there is no folder %s (%w)", model, err)
	}
	client, err := hubClient(0)
	if err != nil {
		return "", err
	}
	defer client.Close()
	folder, err := client.Cached(repo, revision)
	if hub.Is(err, hub.NotCached) {
		err = &unpulledError{repo, revision, err}
	}
	return folder, err
}

// skeletonOnHub is the shape of a model that is not in the cache, by its config.json and
// the headers of its shards alone. err is why there is no folder of it; it is returned
// where it is not about a model of a hub.
func skeletonOnHub(ctx context.Context, err error) (*meta.Model, error) {
	var missing *unpulledError
	if !errors.As(err, &missing) {
		return nil, err
	}
	client, err := hubClient(0)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	there, err := client.FetchHeaders(ctx, missing.repo, missing.revision)
	if err != nil {
		return nil, fmt.Errorf("there is no folder %s (%w)", missing.repo, err)
	}
	slog.Info("planning from headers alone", "model", there.Repo, "commit", there.Commit,
		"shards", len(there.Shards), "fetched", gib(there.Fetched))
	config, err := meta.ReadConfig(there.Config)
	if err != nil {
		return nil, err
	}
	heads := make([]loader.FileHead, len(there.Shards))
	for i, s := range there.Shards {
		heads[i] = loader.FileHead{Name: s.Name, Size: s.Size, Bytes: s.Head}
	}
	headers, err := loader.ReadHeaders(heads, there.Index)
	if err != nil {
		return nil, err
	}
	return meta.New(config, headers)
}
