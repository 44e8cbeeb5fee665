package devicemap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// MarshalJSON encodes the map as a list of [path, device], because some readers sort the names of
// an object. [JSONObject] encodes Accelerate's form.
func (m Map) MarshalJSON() ([]byte, error) {
	return m.marshal('[', ']', func(b *bytes.Buffer, path, device []byte) {
		b.WriteByte('[')
		b.Write(path)
		b.WriteByte(',')
		b.Write(device)
		b.WriteByte(']')
	})
}

// JSONObject is a map in Accelerate's JSON form: one object of paths and devices, in order.
type JSONObject struct{ Map }

// MarshalJSON writes an object.
func (o JSONObject) MarshalJSON() ([]byte, error) {
	return o.marshal('{', '}', func(b *bytes.Buffer, path, device []byte) {
		b.Write(path)
		b.WriteByte(':')
		b.Write(device)
	})
}

func (m Map) marshal(open, close byte, item func(b *bytes.Buffer, path, device []byte)) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte(open)
	for i, e := range m.entries {
		if i > 0 {
			b.WriteByte(',')
		}
		path, err := json.Marshal(e.Path)
		if err != nil {
			return nil, err
		}
		device, err := e.Device.MarshalJSON()
		if err != nil {
			return nil, err
		}
		item(&b, path, device)
	}
	b.WriteByte(close)
	return b.Bytes(), nil
}

// UnmarshalJSON decodes an object or a list of pairs, in order. It returns an error if one path
// has two devices.
func (m *Map) UnmarshalJSON(data []byte) error {
	if err := m.read(data); err != nil {
		return fmt.Errorf("devicemap: device map: %w", err)
	}
	return nil
}

func (m *Map) read(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	open, err := dec.Token()
	if err != nil {
		return mapError(dec, err)
	}
	read := readPair
	switch open {
	case json.Delim('{'):
		read = readField
	case json.Delim('['):
	default:
		return mapError(dec, errors.New("want an object {path: device} or a list of [path, device]"))
	}
	var out Map
	for dec.More() {
		e, err := read(dec)
		if err == nil {
			err = out.add(e)
		}
		if err != nil {
			return mapError(dec, err)
		}
	}
	if _, err := dec.Token(); err != nil {
		return mapError(dec, err)
	}
	*m = out
	return nil
}

// add appends an entry that the user wrote.
func (m *Map) add(e Entry) error {
	if d, ok := m.Get(e.Path); ok && d != e.Device {
		return fmt.Errorf("%q is on device %s and on device %s", e.Path, d, e.Device)
	}
	if strings.ContainsAny(e.Path, "[]") {
		if _, _, _, ok := cutRange(e.Path); !ok {
			return fmt.Errorf("%q has no range of the form PATH[a:b] with a < b", e.Path)
		}
	}
	m.Set(e.Path, e.Device)
	return nil
}

func readField(dec *json.Decoder) (Entry, error) {
	key, err := dec.Token()
	if err != nil {
		return Entry{}, err
	}
	path := key.(string) // an object's names are strings
	var d Device
	if err := dec.Decode(&d); err != nil {
		return Entry{}, fmt.Errorf("%q: %w", path, err)
	}
	return Entry{path, d}, nil
}

func readPair(dec *json.Decoder) (Entry, error) {
	var pair []json.RawMessage
	var e Entry
	if dec.Decode(&pair) != nil || len(pair) != 2 || json.Unmarshal(pair[0], &e.Path) != nil {
		return Entry{}, errors.New("want pairs [path, device]")
	}
	if err := json.Unmarshal(pair[1], &e.Device); err != nil {
		return Entry{}, fmt.Errorf("%q: %w", e.Path, err)
	}
	return e, nil
}

func mapError(dec *json.Decoder, err error) error {
	return fmt.Errorf("byte %d: %w", dec.InputOffset(), err)
}
