package track

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

// An event file is a sequence of records: the length as u64, its masked CRC-32C, the payload, and
// the payload's masked CRC-32C, all little-endian. A payload is a protobuf message Event. The first
// one has the version of the format.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum in the form of event files. Masking keeps a checksum over data that
// contains checksums useful.
func masked(b []byte) uint32 {
	crc := crc32.Checksum(b, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// appendRecord adds a payload as a record.
func appendRecord(dst, payload []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(payload)))
	dst = binary.LittleEndian.AppendUint32(dst, masked(dst[at:]))
	dst = append(dst, payload...)
	return binary.LittleEndian.AppendUint32(dst, masked(payload))
}

// message is a protobuf message under construction.
type message []byte

const (
	varint  = 0
	fixed64 = 1
	counted = 2
	fixed32 = 5
)

func (m *message) tag(field, wire int) { *m = binary.AppendUvarint(*m, uint64(field<<3|wire)) }

// int adds an integer. protobuf omits a 0.
func (m *message) int(field int, v int64) {
	if v != 0 {
		m.tag(field, varint)
		*m = binary.AppendUvarint(*m, uint64(v))
	}
}

func (m *message) double(field int, v float64) {
	m.tag(field, fixed64)
	*m = binary.LittleEndian.AppendUint64(*m, math.Float64bits(v))
}

func (m *message) float(field int, v float32) {
	m.tag(field, fixed32)
	*m = binary.LittleEndian.AppendUint32(*m, math.Float32bits(v))
}

func (m *message) bytes(field int, b []byte) {
	m.tag(field, counted)
	*m = binary.AppendUvarint(*m, uint64(len(b)))
	*m = append(*m, b...)
}

func (m *message) text(field int, s string) { m.bytes(field, []byte(s)) }

// seconds returns a wall time in the unit of events.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// event begins an Event: wall_time = 1, step = 2.
func event(wall float64, step int) message {
	var m message
	m.double(1, wall)
	m.int(2, int64(step))
	return m
}

// versionEvent returns the first event of a file: file_version = 3, source_metadata = 10 {writer =
// 1}.
func versionEvent(wall float64) message {
	m := event(wall, 0)
	m.text(3, "brain.Event:2")
	var source message
	source.text(1, "heft/train/track")
	m.bytes(10, source)
	return m
}

// summaryEvent returns an event with one Value: summary = 5 {value = 1}.
func summaryEvent(wall float64, step int, value message) message {
	var summary message
	summary.bytes(1, value)
	m := event(wall, step)
	m.bytes(5, summary)
	return m
}

// scalar returns a Value: tag = 1, simple_value = 2.
func scalar(tag string, v float64) message {
	var m message
	m.text(1, tag)
	m.float(2, float32(v))
	return m
}

// plugged returns a Value of a plugin of TensorBoard: tag = 1, tensor = 8, metadata = 9
// {plugin_data = 1 {plugin_name = 1, content = 2}}.
func plugged(tag, plugin string, tensor, content message) message {
	var data, meta, m message
	data.text(1, plugin)
	if content != nil {
		data.bytes(2, content)
	}
	meta.bytes(1, data)
	m.text(1, tag)
	if tensor != nil {
		m.bytes(8, tensor)
	}
	m.bytes(9, meta)
	return m
}

// textValue returns a text: a tensor of dtype = 1 string (7), tensor_shape = 2 of one dimension
// {dim = 2 {size = 1}}, string_val = 8.
func textValue(tag, s string) message {
	var dim, shape, tensor message
	dim.int(1, 1)
	shape.bytes(2, dim)
	tensor.int(1, 7)
	tensor.bytes(2, shape)
	tensor.text(8, s)
	return plugged(tag+"/text_summary", "text", tensor, nil)
}

// settingsValue starts a session of the hparams plugin: HParamsPluginData
// {session_start_info = 3 {hparams = 1, a map to google.protobuf.Value; start_time_secs
// = 5}}.
func settingsValue(wall float64, settings []setting) message {
	var start message
	for _, s := range settings {
		var value, entry message
		switch v := s.value.(type) {
		case bool:
			value.tag(4, varint)
			value = append(value, 0)
			if v {
				value[len(value)-1] = 1
			}
		case string:
			value.text(3, v)
		case float64:
			value.double(2, v)
		}
		entry.text(1, s.name)
		entry.bytes(2, value)
		start.bytes(1, entry)
	}
	start.double(5, wall)
	var content message
	content.bytes(3, start)
	return plugged("_hparams_/session_start_info", "hparams", nil, content)
}

// endValue ends that session: session_end_info = 4 {status = 1 (success), end_time_secs
// = 2}.
func endValue(wall float64) message {
	var end, content message
	end.int(1, 1)
	end.double(2, wall)
	content.bytes(4, end)
	return plugged("_hparams_/session_end_info", "hparams", nil, content)
}

// setting is one of a run's settings: a float64, a bool or a string.
type setting struct {
	name  string
	value any
}

// plainText matches text that needs no quotes in YAML.
var plainText = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

func (s setting) yaml() string {
	v, text := s.value.(string)
	if text && (!plainText.MatchString(v) || slices.Contains([]string{"true", "false", "yes", "no", "on", "off", "null", "y", "n"}, strings.ToLower(v))) {
		return fmt.Sprintf("%s: %q\n", s.name, v)
	}
	return fmt.Sprintf("%s: %v\n", s.name, s.value)
}
