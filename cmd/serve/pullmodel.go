package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// hubClient returns a client for the hub and the cache that the environment names.
func hubClient(connections int) (*hub.Client, error) {
	config, err := hub.UserEnvironment()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "heft/" + version
	config.Proxy = http.ProxyFromEnvironment
	config.Connections = connections
	return hub.New(config)
}

// skeletonOnHub builds the skeleton of a model that is not in the cache. It fetches only its
// config.json and the headers of its shards. err is the error of opening the model. If err is not a
// *hub.MissingError, skeletonOnHub returns it.
func skeletonOnHub(ctx context.Context, err error) (*meta.Model, error) {
	var missing *hub.MissingError
	if !errors.As(err, &missing) {
		return nil, err
	}
	if missing.GGUF != "" {
		return nil, fmt.Errorf("%w; a GGUF file must be in the cache to be planned", err)
	}
	client, err := hubClient(0)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	there, err := client.FetchHeaders(ctx, missing.Repo, missing.Revision)
	if err != nil {
		return nil, fmt.Errorf("there is no folder %s, and its headers cannot be read from the hub: %w", missing.Repo, err)
	}
	slog.Info("planning from headers only", "model", there.Repo, "commit", there.Commit,
		"shards", len(there.Shards), "fetched", gib(there.Fetched))
	config, err := meta.ReadConfigs(there.Config, there.Quant)
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
