package devicemap

import (
	"fmt"
	"strconv"
	"strings"
)

// Explain describes the plan in a few lines: for each device its memory by purpose and the paths
// on it, then the minimum memory. It omits the warnings, which the caller prints.
func (p Plan) Explain() string {
	return p.lines(func(d DevicePlan, paths string) string {
		text := fmt.Sprintf("%-5s %s\n", d.Device, d.explain(p.DiskBytesPerToken))
		if paths != "" {
			text += fmt.Sprintf("      %s\n", paths)
		}
		return text
	})
}

// ExplainPaths is Explain without the memory of the devices and the reads from the disk, which
// [Plan.Render] and predictions show.
func (p Plan) ExplainPaths() string {
	return p.lines(func(d DevicePlan, paths string) string {
		if paths == "" {
			return ""
		}
		return fmt.Sprintf("%-5s %s\n", d.Device, paths)
	})
}

// lines returns the policy, the text of each device that is used, and the minimum memory.
func (p Plan) lines(text func(d DevicePlan, paths string) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "policy %s\n", p.Policy)
	series := p.series()
	for _, d := range p.Devices {
		paths := strings.Join(pathsOn(series, d.Device), ", ")
		if paths != "" || d.Used() > 0 {
			b.WriteString(text(d, paths))
		}
	}
	if p.Least > 0 {
		fmt.Fprintf(&b, "minimum %s on the host: staging for streamed weights, the KV cache of one sequence, activations\n", FormatSize(p.Least))
	}
	return b.String()
}

func (d DevicePlan) explain(diskReads int64) string {
	if d.Device == Disk {
		return fmt.Sprintf("weights %s, of which a token reads %s", FormatSize(d.WeightsBytes), FormatSize(diskReads))
	}
	text := fmt.Sprintf("limit %s = weights %s", FormatSize(d.LimitBytes), FormatSize(d.WeightsBytes))
	for _, use := range []struct {
		name  string
		bytes int64
	}{{"kv", d.KVBytes}, {"activations", d.ActivationBytes}, {"staging", d.StagingBytes}, {"requests", d.RequestBytes}, {"runtime", d.RuntimeBytes}} {
		if use.bytes > 0 {
			text += fmt.Sprintf(" + %s %s", use.name, FormatSize(use.bytes))
		}
	}
	if free := d.LimitBytes - d.Used(); free >= 0 {
		return text + fmt.Sprintf(" + free %s", FormatSize(free))
	}
	return text + fmt.Sprintf(" - %s over", FormatSize(d.Used()-d.LimitBytes))
}

// A series is a single entry of a map, or all entries whose paths differ only in one number, such
// as the blocks of a model.
type series struct {
	before, after string // path is before + number + after; just before for a single entry
	cells         []cell
}

type cell struct {
	number int // -1 for a single entry
	device Device
}

// series groups the plan's entries. Groups are in the order of their first entry.
func (p Plan) series() []*series {
	var list []*series
	byName := map[[2]string]*series{}
	for path, d := range p.Map.All() {
		before, number, after := cutNumber(path)
		key := [2]string{before, after}
		s := byName[key]
		if s == nil || number < 0 {
			s = &series{before: before, after: after}
			byName[key] = s
			list = append(list, s)
		}
		s.cells = append(s.cells, cell{number, d})
	}
	return list
}

// cutNumber splits a path at its first number. number is -1 if there is none.
func cutNumber(path string) (before string, number int, after string) {
	for begin := 0; begin < len(path); {
		end := begin + strings.IndexByte(path[begin:]+".", '.')
		if n, ok := index(path[begin:end]); ok {
			return path[:begin], n, path[end:]
		}
		begin = end + 1
	}
	return path, -1, ""
}

// pathsOn lists the modules on d and merges runs of numbers: "model.layers.0-6".
func pathsOn(list []*series, d Device) []string {
	var paths []string
	for _, s := range list {
		for i := 0; i < len(s.cells); i++ {
			if s.cells[i].device != d {
				continue
			}
			first := s.cells[i].number
			for i+1 < len(s.cells) && s.cells[i+1].device == d && s.cells[i+1].number == s.cells[i].number+1 {
				i++
			}
			paths = append(paths, s.name(first, s.cells[i].number))
		}
	}
	return paths
}

// name returns the path of the cells from first to last.
func (s *series) name(first, last int) string {
	switch {
	case first < 0 && s.before == "":
		return "the model"
	case first < 0:
		return s.before
	case first == last:
		return s.before + strconv.Itoa(first) + s.after
	}
	return fmt.Sprintf("%s%d-%d%s", s.before, first, last, s.after)
}
