package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/repl"
)

// psCmd is serve ps.
type psCmd struct {
	clientFlags
	Server   string        `arg:"" optional:"" placeholder:"URL" help:"Query this server, as with --url."`
	URL      string        `name:"url" help:"Query this server (default ${default})." default:"http://127.0.0.1:8000" placeholder:"URL"`
	Interval time.Duration `help:"Measure rates over this time (default ${default})." default:"1s" placeholder:"D"`
	JSON     bool          `name:"json" help:"Print one JSON object."`
}

// activity is the response of GET /activity.
type activity struct {
	Seconds float64
	Models  []struct {
		Model           string
		Adapters        []string
		Status          string
		Running         int
		Waiting         int
		GeneratedTokens int64 `json:"generated_tokens"`
		KV              struct {
			Pages int
			Used  int `json:"used_pages"`
		}
		Memory struct {
			Limit int64            `json:"limit_bytes"`
			Held  map[string]int64 `json:"held_bytes"`
		}
		Tiers []struct {
			Tier  devicemap.Device
			Bytes int64
			Read  int64 `json:"read_bytes"`
		}
	}
}

// psModel is a model in the output of serve ps.
type psModel struct {
	Model           string   `json:"model"`
	Status          string   `json:"status"`
	Adapters        []string `json:"adapters,omitempty"`
	Tiers           []psTier `json:"tiers"`
	MemoryBytes     int64    `json:"memory_bytes"`
	LimitBytes      int64    `json:"limit_bytes"`
	Running         int      `json:"running"`
	Waiting         int      `json:"waiting"`
	KVUsage         float64  `json:"kv_usage"` // from 0 to 1
	TokensPerSecond float64  `json:"tokens_per_second"`
}

type psTier struct {
	Tier           devicemap.Device `json:"tier"`
	Bytes          int64            `json:"bytes"`
	BytesPerSecond float64          `json:"bytes_per_second"` // 0 for a GPU, whose bytes are not counted
}

// name returns the tier's name for people.
func (t psTier) name() string {
	if i, ok := t.Tier.GPU(); ok {
		return "gpu " + strconv.Itoa(i)
	}
	return string(t.Tier)
}

// Run reads the server's counters twice and prints a line per model.
func (c *psCmd) Run(ctx context.Context, out cmdline.Output) error {
	if c.Interval <= 0 {
		return cmdline.Misusef("--interval: got %v, want more than 0s", c.Interval)
	}
	client, err := c.client(cmp.Or(c.Server, c.URL))
	if err != nil {
		return err
	}
	var before, after activity
	if err := reachable(client, client.Get(ctx, "/activity", &before)); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.Interval):
	}
	if err := reachable(client, client.Get(ctx, "/activity", &after)); err != nil {
		return err
	}
	known, err := client.Models(ctx)
	if err != nil {
		return err
	}
	models := modelRates(before, after, known)
	if c.JSON {
		return printJSON(out, map[string]any{"models": models})
	}
	return printServed(out, models)
}

// modelRates joins two readings. Models that are not loaded come last.
func modelRates(before, after activity, known []repl.Model) []psModel {
	list := []psModel{}
	seconds := after.Seconds - before.Seconds
	loaded := map[string]bool{}
	for _, m := range after.Models {
		loaded[m.Model] = true
		s := psModel{Model: m.Model, Status: m.Status, Adapters: m.Adapters, Tiers: []psTier{}, LimitBytes: m.Memory.Limit, Running: m.Running, Waiting: m.Waiting}
		for _, n := range m.Memory.Held {
			s.MemoryBytes += n
		}
		if m.KV.Pages > 0 {
			s.KVUsage = float64(m.KV.Used) / float64(m.KV.Pages)
		}
		for _, t := range m.Tiers {
			s.Tiers = append(s.Tiers, psTier{Tier: t.Tier, Bytes: t.Bytes})
		}
		for _, b := range before.Models {
			if b.Model != m.Model || seconds <= 0 {
				continue
			}
			s.TokensPerSecond = float64(m.GeneratedTokens-b.GeneratedTokens) / seconds
			for i, t := range m.Tiers {
				for _, earlier := range b.Tiers {
					if earlier.Tier == t.Tier {
						s.Tiers[i].BytesPerSecond = float64(t.Read-earlier.Read) / seconds
					}
				}
			}
		}
		list = append(list, s)
	}
	for _, m := range known {
		if !loaded[m.ID] && m.Parent == "" {
			list = append(list, psModel{Model: m.ID, Status: m.Status, Tiers: []psTier{}})
		}
	}
	return list
}

func printServed(out io.Writer, models []psModel) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MODEL\tSTATUS\tWEIGHTS\tMEMORY\tREQUESTS\tKV\tTOKENS/S\tREADS")
	for _, m := range models {
		var weights, reads []string
		for _, t := range m.Tiers {
			weights = append(weights, t.name()+" "+gib(t.Bytes))
			if t.BytesPerSecond > 0 {
				reads = append(reads, fmt.Sprintf("%s %.2f GB/s", t.name(), t.BytesPerSecond/1e9))
			}
		}
		memory, requests := "-", fmt.Sprintf("%d running", m.Running)
		if m.MemoryBytes > 0 {
			memory = gib(m.MemoryBytes)
		}
		if m.LimitBytes > 0 {
			memory += " of " + gib(m.LimitBytes)
		}
		if m.Waiting > 0 {
			requests += fmt.Sprintf(", %d waiting", m.Waiting)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%.0f %%\t%.1f\t%s\n", shown(m.Model), m.Status, orDash(weights), memory, requests, 100*m.KVUsage, m.TokensPerSecond, orDash(reads))
		for _, a := range m.Adapters {
			fmt.Fprintf(table, "  %s\tadapter\n", shown(a))
		}
	}
	return table.Flush()
}

func orDash(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}
