package connectx

import (
	"bytes"
	"errors"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// objectCommands are the commands of protection domains, memory keys and
// completion queues.
var objectCommands = []command{
	{0x200, "CREATE_MKEY", prm.CreateMKeyIn, prm.CreateMKeyOut, running, (*Device).createMKey},
	{0x201, "QUERY_MKEY", prm.QueryMKeyIn, prm.QueryMKeyOut, running, (*Device).queryMKey},
	{0x202, "DESTROY_MKEY", prm.DestroyMKeyIn, prm.DestroyMKeyOut, running, (*Device).destroyMKey},
	{0x203, "QUERY_SPECIAL_CONTEXTS", prm.QuerySpecialContextsIn, prm.QuerySpecialContextsOut, running,
		(*Device).querySpecialContexts},
	{0x204, "PAGE_FAULT_RESUME", prm.PageFaultResumeIn, prm.PageFaultResumeOut, running, (*Device).resumePageFault},
	{0x205, "ALLOC_MEMIC", prm.AllocMEMICIn, prm.AllocMEMICOut, running, (*Device).allocMEMIC},
	{0x206, "DEALLOC_MEMIC", prm.DeallocMEMICIn, prm.DeallocMEMICOut, running, (*Device).deallocMEMIC},
	{0x207, "MODIFY_MEMIC", prm.ModifyMEMICIn, prm.ModifyMEMICOut, running, (*Device).modifyMEMIC},
	{0x400, "CREATE_CQ", prm.CreateCQIn, prm.CreateCQOut, running, (*Device).createCQ},
	{0x401, "DESTROY_CQ", prm.DestroyCQIn, prm.DestroyCQOut, running, (*Device).destroyCQ},
	{0x402, "QUERY_CQ", prm.QueryCQIn, prm.QueryCQOut, running, (*Device).queryCQ},
	{0x403, "MODIFY_CQ", prm.ModifyCQIn, prm.ModifyCQOut, running, (*Device).modifyCQ},
	{0x800, "ALLOC_PD", prm.AllocPDIn, prm.AllocPDOut, running, (*Device).allocPD},
	{0x801, "DEALLOC_PD", prm.DeallocPDIn, prm.DeallocPDOut, running, (*Device).deallocPD},
	{0x80e, "ALLOC_XRCD", prm.AllocXRCDIn, prm.AllocXRCDOut, running, (*Device).allocXRCD},
	{0x80f, "DEALLOC_XRCD", prm.DeallocXRCDIn, prm.DeallocXRCDOut, running, (*Device).deallocXRCD},
}

// engineStatus returns the status for an error of the engine.
func engineStatus(err error) status {
	for _, s := range []struct {
		kind   error
		status status
	}{
		{engine.ErrParam, statusBadParam},
		{engine.ErrResource, statusBadResource},
		{engine.ErrState, statusBadResourceState},
		{engine.ErrLimit, statusLimit},
		{engine.ErrBusy, statusBusy},
	} {
		if errors.Is(err, s.kind) {
			return s.status
		}
	}
	return statusInternal
}

// writeNumber stores the number of a created object in the output.
func writeNumber(f prm.Field, out []byte, number uint32, err error) error {
	if err == nil {
		f.Set(out, uint64(number))
	}
	return err
}

func get32(f prm.Field, b []byte) uint32 { return uint32(f.Get(b)) }

func (d *Device) allocPD(in, out []byte) error {
	n, err := d.hca.CreatePD()
	return writeNumber(prm.AllocPDOutPD, out, n, err)
}

func (d *Device) deallocPD(in, out []byte) error {
	return d.hca.DestroyPD(get32(prm.DeallocPDInPD, in))
}

func (d *Device) allocXRCD(in, out []byte) error {
	n, err := d.hca.CreateXRCD()
	return writeNumber(prm.AllocXRCDOutXRCD, out, n, err)
}

func (d *Device) deallocXRCD(in, out []byte) error {
	return d.hca.DestroyXRCD(get32(prm.DeallocXRCDInXRCD, in))
}

func (d *Device) querySpecialContexts(in, out []byte) error {
	prm.QuerySpecialContextsOutResdLKey.Set(out, engine.ReservedLKey)
	prm.QuerySpecialContextsOutDumpFillMKey.Set(out, engine.NullMKey)
	if d.config.ODP {
		prm.QuerySpecialContextsOutNullMKey.Set(out, engine.NoMKey)
	}
	return nil
}

// mkeyRights maps rights to bits of a memory key's context.
var mkeyRights = map[engine.Rights]prm.Field{
	engine.LocalRead: prm.MKCLR, engine.LocalWrite: prm.MKCLW, engine.RemoteRead: prm.MKCRR,
	engine.RemoteWrite: prm.MKCRW, engine.RemoteAtomic: prm.MKCA,
}

const octoword = 16 // bytes

func (d *Device) createMKey(in, out []byte) error {
	c := prm.CreateMKeyInMKC.Bytes(in)
	list := prm.CreateMKeyInKLMPASMTT.Rest(in)
	actual := prm.CreateMKeyInTranslationsOctwordActualSize.Get(in)
	if actual > uint64(len(list)/octoword) {
		return refuse(statusBadInputLength, reasonLength)
	}
	a := engine.MKeyAttr{
		Mode:        engine.AccessMode(prm.MKCAccessMode42.Get(c)<<2 | prm.MKCAccessMode10.Get(c)),
		Free:        prm.MKCFree.Is(c),
		UMR:         prm.MKCUMREn.Is(c),
		RemoteInval: prm.MKCEnRinval.Is(c),
		OnDemand:    d.config.ODP && prm.CreateMKeyInPGAccess.Is(in),
		QPN:         get32(prm.MKCQPN, c),
		Variant:     uint8(prm.MKCMKey70.Get(c)),
		PD:          get32(prm.MKCPD, c),
		Start:       prm.MKCStartAddr.Get(c),
		Length:      prm.MKCLen.Get(c),
		Length64:    prm.MKCLength64.Is(c),
		PageShift:   uint8(prm.MKCLogPageSize.Get(c)),
		Octowords:   get32(prm.MKCTranslationsOctwordSize, c),
	}
	if actual > 0 {
		a.Translations = bytes.Clone(list[:actual*octoword])
	}
	if err := d.placeMKey(in, &a); err != nil {
		return err
	}
	for right, f := range mkeyRights {
		if f.Is(c) {
			a.Rights |= right
		}
	}
	k, err := d.hca.CreateMKey(a)
	if err != nil {
		return err
	}
	prm.CreateMKeyOutMKeyIndex.Set(out, uint64(k.Index))
	return nil
}

// placeMKey sets the list of a memory key whose data is in a umem. Keys of users are either of this
// kind or consist of other keys: users do not know the addresses of memory.
func (d *Device) placeMKey(in []byte, a *engine.MKeyAttr) (err error) {
	indirect := a.Mode == engine.KLM || a.Mode == engine.KSM
	if !prm.CreateMKeyInMKeyUMemValid.Is(in) {
		if !indirect && !privileged(userOf(in)) {
			return refuse(statusBadParam, reasonUMem)
		}
		return nil
	}
	if a.Mode != engine.MTT || a.Free || a.Length64 || len(a.Translations) > 0 {
		return refuse(statusBadParam, reasonCapability)
	}
	a.Translations, err = d.keyPages(in, a.Length, a.PageShift)
	a.Octowords = max(a.Octowords, uint32(len(a.Translations)/octoword))
	return err
}

func (d *Device) queryMKey(in, out []byte) error {
	k, err := d.hca.QueryMKey(get32(prm.QueryMKeyInMKeyIndex, in))
	if err != nil {
		return err
	}
	c := prm.QueryMKeyOutMKC.Bytes(out)
	prm.MKCAccessMode42.Set(c, uint64(k.Mode>>2))
	prm.MKCAccessMode10.Set(c, uint64(k.Mode))
	prm.MKCFree.SetBool(c, k.Free)
	prm.MKCUMREn.SetBool(c, k.UMR)
	prm.MKCEnRinval.SetBool(c, k.RemoteInval)
	prm.MKCQPN.Set(c, uint64(k.QPN))
	prm.MKCMKey70.Set(c, uint64(k.Variant))
	prm.MKCPD.Set(c, uint64(k.PD))
	prm.MKCStartAddr.Set(c, k.Start)
	prm.MKCLen.Set(c, k.Length)
	prm.MKCLength64.SetBool(c, k.Length64)
	prm.MKCLogPageSize.Set(c, uint64(k.PageShift))
	prm.MKCTranslationsOctwordSize.Set(c, uint64(k.Octowords))
	for right, f := range mkeyRights {
		f.SetBool(c, k.Rights&right != 0)
	}
	return nil
}

func (d *Device) destroyMKey(in, out []byte) error {
	return d.hca.DestroyMKey(get32(prm.DestroyMKeyInMKeyIndex, in))
}

// buffer decodes a queue's buffer of n bytes. Its offset in the first page is
// in 64ths of a page. The list of pages is the rest of the command.
func buffer(in []byte, list prm.Field, logPageSize, pageOffset uint64, n uint64) (engine.Buffer, error) {
	b := engine.Buffer{PageShift: uint8(logPageSize) + 12}
	b.Offset = pageOffset << (b.PageShift - 6)
	pages := (b.Offset + n + 1<<b.PageShift - 1) >> b.PageShift
	if pages > uint64(len(list.Rest(in))/8) {
		return b, refuse(statusBadInputLength, reasonBuffer)
	}
	for i := range int(pages) {
		b.Pages = append(b.Pages, list.At(i).Get(in)&^(pageSize-1))
	}
	return b, nil
}

// checkUAR checks that a UAR page is allocated.
func (d *Device) checkUAR(page uint32) error {
	if !d.uars.has(page) {
		return refuse(statusBadResource, reasonUAR)
	}
	return nil
}
