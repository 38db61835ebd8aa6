# Serves a RAM disk by NVMe over RDMA to the guest itself, and verifies what fio writes.
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/ram
echo 1 >subsystems/ram/attr_allow_any_host
mkdir subsystems/ram/namespaces/1
printf /dev/ram0 >subsystems/ram/namespaces/1/device_path
echo 1 >subsystems/ram/namespaces/1/enable
mkdir ports/1
echo rdma >ports/1/addr_trtype
echo ipv4 >ports/1/addr_adrfam
echo 10.9.0.1 >ports/1/addr_traddr
echo 4420 >ports/1/addr_trsvcid
ln -s "$PWD/subsystems/ram" ports/1/subsystems/ram

echo transport=rdma,traddr=10.9.0.1,trsvcid=4420,nqn=ram,nr_io_queues=2 >/dev/nvme-fabrics
until test -b /dev/nvme0n1; do sleep 0.1; done
cd /tmp
fio --name=write --filename=/dev/nvme0n1 --direct=1 --rw=randwrite --bsrange=4k-256k --size=8M --ioengine=libaio \
	--iodepth=8 --verify=crc32c --verify_fatal=1 >/tmp/fio 2>&1 || { cat /tmp/fio; exit 1; }
cmp /dev/nvme0n1 /dev/ram0

echo 1 >/sys/class/nvme/nvme0/delete_controller
cd /sys/kernel/config/nvmet
rm ports/1/subsystems/ram
rmdir ports/1
echo 0 >subsystems/ram/namespaces/1/enable
rmdir subsystems/ram/namespaces/1 subsystems/ram
echo verified
