package track

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// record is a record of the reference's event file.
type record struct {
	Offset, Length float64
	Wall           float64 `json:"wall_time"`
	Step           float64
	Payload        string  `json:"payload_hex"`
	LengthCRC      float64 `json:"length_crc"`
	DataCRC        float64 `json:"data_crc"`
	Version        string  `json:"file_version"`
	Tag, Plugin    string
	Value          *float64 `json:"simple_value"`
}

// TestGoldenTensorboard reads the reference's event file, and writes its records again,
// byte for byte.
func TestGoldenTensorboard(t *testing.T) {
	var want struct {
		Records []record
		Tags    []string
		Scalars map[string][][2]float64
	}
	n := 0
	if golden.JSON(t, golden.Path(t, "train/tensorboard/events.json"), &want) {
		n++
		for _, path := range golden.Glob(t, "train/tensorboard/events.out.tfevents.*") {
			file, err := golden.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			r := bytes.NewReader(file)
			for i, w := range want.Records {
				if at := len(file) - r.Len(); at != int(w.Offset) {
					t.Fatalf("record %d begins at %d, want %d", i, at, int(w.Offset))
				}
				payload, err := readRecord(r)
				if err != nil {
					t.Fatalf("record %d: %v", i, err)
				}
				w.check(t, i, payload)
			}
			if _, err := readRecord(r); !errors.Is(err, io.EOF) {
				t.Errorf("after the last record: %v", err)
			}
		}
	}
	golden.Count(t, "train/tensorboard", n)
}

// check compares the payload with that of our writer for the same event.
func (w *record) check(t *testing.T, i int, payload []byte) {
	t.Helper()
	if len(payload) != int(w.Length) || hex.EncodeToString(payload) != w.Payload {
		t.Fatalf("record %d is %x, want %s", i, payload, w.Payload)
	}
	framed := appendRecord(nil, payload)
	if n := len(framed); le32(framed[8:]) != uint32(w.LengthCRC) || le32(framed[n-4:]) != uint32(w.DataCRC) {
		t.Errorf("record %d: checksums are %d and %d, want %v and %v", i, le32(framed[8:]), le32(framed[n-4:]), w.LengthCRC, w.DataCRC)
	}
	var ours message
	switch {
	case w.Version != "":
		ours = versionEvent(w.Wall) // the writer's name differs
		if at := 9 + 2 + len(w.Version); !bytes.HasPrefix(ours, payload[:at]) {
			t.Errorf("record %d: ours is %x, want %x", i, ours, payload)
		}
		return
	case w.Value != nil:
		ours = summaryEvent(w.Wall, int(w.Step), scalar(w.Tag, *w.Value))
	case w.Plugin == "text":
		at := bytes.LastIndex(payload, []byte("J\x08\n\x06\n\x04text")) // the metadata, behind the text
		text := payload[bytes.Index(payload, []byte{8, 1, 0x42})+4 : at]
		ours = summaryEvent(w.Wall, int(w.Step), textValue(strings.TrimSuffix(w.Tag, "/text_summary"), string(text)))
	default:
		return
	}
	if !bytes.Equal(ours, payload) {
		t.Errorf("record %d: ours is\n%x, want\n%x", i, ours, payload)
	}
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// FuzzReadRecord: whatever a file holds, reading ends with an error or a payload that its
// checksum covers.
func FuzzReadRecord(f *testing.F) {
	f.Add(appendRecord(nil, versionEvent(1.5)))
	f.Add(appendRecord(nil, nil)[:7])
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			payload, err := readRecord(r)
			if err != nil {
				return
			}
			if again := appendRecord(nil, payload); !bytes.Contains(b, again) {
				t.Errorf("read %x, which is not in the file", payload)
			}
		}
	})
}
