package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
)

// listCmd is serve list: the models in the cache.
type listCmd struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Run prints one line per snapshot.
func (c *listCmd) Run(out cmdline.Output) error {
	client, err := hubClient(0)
	if err != nil {
		return err
	}
	defer client.Close()
	models, err := client.List()
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(out, map[string]any{"models": append([]hub.CachedModel{}, models...)})
	}
	if len(models) == 0 {
		_, err := fmt.Fprintln(out, "no models yet; fetch one with: serve pull ORG/NAME")
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MODEL\tREVISION\tSIZE\tPULLED\t")
	for _, m := range models {
		revision := m.Commit[:7]
		if len(m.Refs) > 0 {
			revision = shown(strings.Join(m.Refs, ", ")) + " (" + revision + ")"
		}
		note := ""
		if !m.Complete {
			note = "incomplete: pull it again"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", m.Repo, revision, gib(m.Bytes), m.Pulled.Format("2006-01-02"), note)
	}
	return table.Flush()
}

// rmCmd is serve rm: delete models from the cache.
type rmCmd struct {
	modelFlags
}

// Run deletes a snapshot, or all snapshots of a model, and prints the disk space freed.
func (c *rmCmd) Run(out cmdline.Output) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	if path == "" {
		return cmdline.Misusef("got no model, want serve rm ORG/NAME[@REVISION] (serve list shows the models)")
	}
	repo, revision, err := hub.ParseRepo(path)
	if err != nil {
		return cmdline.Misuse(err)
	}
	client, err := hubClient(0)
	if err != nil {
		return err
	}
	defer client.Close()
	freed, err := client.Remove(repo, revision)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "removed %s, %s freed\n", path, gib(freed))
	return err
}
