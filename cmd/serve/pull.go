package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
)

// pullCmd is serve pull. It uses the hub and the cache of the Python package huggingface_hub, which
// the variables HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH and HF_HUB_OFFLINE
// configure.
type pullCmd struct {
	modelFlags
	Revision    string   `help:"Download this branch, tag or commit (default: main)." placeholder:"R"`
	Include     []string `help:"Download files that match, not just those that serving needs: *.json, onnx/." placeholder:"PATTERN"`
	Exclude     []string `help:"Skip files that match." placeholder:"PATTERN"`
	Connections int      `help:"Use at most N connections at once (default ${default})." default:"8" placeholder:"N"`
	JSON        bool     `name:"json" help:"Print one JSON object."`
}

// Run pulls the model, shows progress on stderr, and prints the folder of the snapshot. For
// ORG/NAME:TYPE it prints the GGUF file.
func (c *pullCmd) Run(ctx context.Context, out cmdline.Output, diagnostics cmdline.Diagnostics) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	if path == "" {
		return cmdline.Misusef("got no model, want serve pull ORG/NAME")
	}
	path, tag := hub.CutTag(path)
	repo, revision, err := hub.ParseRepo(path)
	if err != nil {
		return cmdline.Misuse(err)
	}
	if revision != "" && c.Revision != "" && revision != c.Revision {
		return cmdline.Misusef("the revision was given twice: %s and --revision %s", revision, c.Revision)
	}
	if c.Revision != "" {
		revision = c.Revision
	}
	client, err := hubClient(c.Connections)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	view := newPullView(diagnostics)
	snapshot, err := client.Pull(ctx, repo, hub.PullOptions{
		Revision: revision, Include: c.Include, Exclude: c.Exclude, GGUF: tag, Progress: view.tell,
	})
	view.end(snapshot)
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; run the same command to continue")
	case hub.Is(err, hub.BadName):
		return cmdline.Misuse(err)
	case err != nil:
		return err
	case c.JSON:
		return printJSON(out, snapshot)
	}
	place := snapshot.Dir
	if tag != "" {
		if files, err := hub.GGUFFiles(snapshot.Files, tag); err == nil {
			place = filepath.Join(place, filepath.FromSlash(files[0]))
		}
	}
	_, err = fmt.Fprintln(out, place)
	return err
}
