package store

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxUnpacked bounds what a packed body may become. A body is one answer of a
// provider at most, which is held in memory while it is read.
const maxUnpacked = 1 << 30

// packer makes bodies smaller. Its zero value is ready; the tables that packing
// needs are made when the first body comes.
type packer struct {
	once sync.Once
	enc  *zstd.Encoder
	dec  *zstd.Decoder
	err  error
}

func (p *packer) ready() error {
	p.once.Do(func() {
		// One at a time of each: bodies are few, and tables for more take memory.
		p.enc, p.err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		if p.err == nil {
			p.dec, p.err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
		}
	})
	return p.err
}

// pack gives body as it is stored: packed where that is shorter.
func (p *packer) pack(body []byte) ([]byte, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	if packed := p.enc.EncodeAll(body, make([]byte, 0, len(body))); len(packed) < len(body) {
		return packed, nil
	}
	return body, nil
}

// unpack gives back what pack was given, which had that size.
func (p *packer) unpack(stored []byte, size int) ([]byte, error) {
	if len(stored) < size && size <= maxUnpacked {
		if err := p.ready(); err != nil {
			return nil, err
		}
		var err error
		// What it says of its own length is not believed beyond size.
		if stored, err = p.dec.DecodeAll(stored, make([]byte, 0, size)); err != nil {
			return nil, err
		}
	}
	if len(stored) != size {
		return nil, fmt.Errorf("it has %d bytes instead of %d", len(stored), size)
	}
	return stored, nil
}
