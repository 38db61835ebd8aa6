package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// sbom writes the bill of materials of the program for an architecture: the modules that are linked into it.
func (r *release) sbom(arch string, binary []byte, modules []*module) error {
	var components []cyclonedx.Component
	for _, m := range modules {
		components = append(components, cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, BOMRef: m.purl(), PackageURL: m.purl(), Name: m.path, Version: m.version,
			Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: m.license}}},
		})
	}
	program, libraries := components[0], components[1:]
	program.Type = cyclonedx.ComponentTypeApplication
	program.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256,
		Value: fmt.Sprintf("%x", sha256.Sum256(binary))}}
	uses := cyclonedx.Dependency{Ref: program.BOMRef, Dependencies: new([]string)}
	for _, l := range libraries {
		*uses.Dependencies = append(*uses.Dependencies, l.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: time.Unix(r.seconds, 0).UTC().Format(time.RFC3339), Component: &program}
	bom.Components, bom.Dependencies = &libraries, &[]cyclonedx.Dependency{uses}
	var b bytes.Buffer
	// Most programs that read such files do not know the latest version yet.
	if err := cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom,
		cyclonedx.SpecVersion1_6); err != nil {
		return err
	}
	return r.write(r.name(arch)+".cdx.json", b.Bytes())
}
