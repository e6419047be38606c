package config

import "strings"

// broken are the settings that could not be read. What other settings seem to
// lack because of that is a consequence and no fault of its own.
type broken struct {
	keys map[string]bool // by path; "" is the whole file
	// meant are those that a misspelt name was probably meant to be.
	meant []string
}

func (b *broken) add(key string) {
	if b.keys == nil {
		b.keys = map[string]bool{}
	}
	b.keys[key] = true
}

func (b *broken) mean(key string) { b.meant = append(b.meant, key) }

// settle takes those for broken that were misspelt and not set elsewhere.
func (b *broken) settle(src Sources) {
	for _, key := range b.meant {
		if !src.sets(key) {
			b.add(key)
		}
	}
}

// at says that the setting itself could not be read.
func (b *broken) at(key string) bool { return b.keys[key] }

// within says that something in that section could not be read.
func (b *broken) within(section string) bool {
	for key := range b.keys {
		if strings.HasPrefix(key, section+".") {
			return true
		}
	}
	return false
}

// touches says that one of the settings, or a thing it is part of, could not
// be read, so that their values are not what somebody wanted.
func (b *broken) touches(keys ...string) bool {
	if len(b.keys) == 0 {
		return false
	}
	for _, key := range keys {
		for ; ; key = key[:max(strings.LastIndexByte(key, '.'), 0)] {
			if b.keys[key] {
				return true
			}
			if key == "" {
				break
			}
		}
	}
	return false
}
