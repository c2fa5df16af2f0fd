// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdcontract

// contractCase is a script that runs on both sides.
type contractCase struct{ What, Shell string }

// mapped maps the side's image and notes the device.
const mapped = `rbd map $I $A -o noudev > $W/d || exit $?
`

// unmapped unmaps it. Where there is no udevd, as in the virtual machine, rbd waits for it for ever.
const unmapped = `rbd unmap $(cat $W/d) -o noudev`

// cases build on each other: what one leaves the next one finds.
var cases = []contractCase{
	{"an image is mapped", mapped + `cat $W/d`},
	{"sysfs shows which image a device is", `n=$(cat $W/d); n=${n#/dev/rbd}
for f in pool name current_snap pool_ns config_info; do printf '%s=' $f; cat /sys/bus/rbd/devices/$n/$f; done`},
	{"unmap is refused while the device is open", `exec 9< $(cat $W/d); ` + unmapped},
	{"the filesystem is mounted, and unmap is refused", `mount -t ext4 $(cat $W/d) $W/m || exit 99
` + unmapped + `; c=$?; umount $W/m; exit $c`},
	{"unmap", unmapped},
	{"sysfs no longer shows a device", `for f in /sys/bus/rbd/devices/[0-9]*; do [ ! -e $f ] || echo $f; done`},
	{"unmap of a device that no longer exists", unmapped},
	{"map of an image that does not exist", `rbd map nothing $A -o noudev`},
	{"map with a pool that does not exist", `rbd map $I --pool nothing ${A#--pool rbd} -o noudev`},
	{"map with another user's key", `rbd map $I ${A%--key=*} --key=AQDkTh9aLm2cKRAAcJ0oPjV7pYx3xg4yJ1sVmw== -o noudev`},
	{"an image with a lock of a kubelet up to 1.8 can be mapped", `rbd lock add $I ` + lock + ` $A || exit 99
` + mapped + unmapped + ` || exit 98
rbd lock list $I $A | grep -c ` + lock},
	{"so can an image with the feature exclusive-lock and without a lock", `rbd map $E $A -o noudev > $W/d || exit $?
` + unmapped},
	{"with that feature a lock makes map fail", `rbd lock add $E ` + lock + ` $A || exit 99
rbd map $E $A -o noudev`},
	{"without the lock it can be mapped again", `c=$(rbd lock list $E $A | grep -o 'client\.[0-9]*') || exit 99
rbd lock remove $E ` + lock + ` $c $A --rbd_blocklist_on_break_lock=false || exit 98
rbd map $E $A -o noudev > $W/d && ` + unmapped},
	{"a device that is set read-only", mapped + `d=$(cat $W/d); blockdev --getro $d; blockdev --setro $d; blockdev --getro $d`},
	{"nothing writes to it", `d=$(cat $W/d); dd if=/dev/zero of=$d bs=4096 count=1 conv=fsync 2>/dev/null; echo $?
e2fsck -fn $d > /dev/null 2>&1; echo $?`},
	{"it is mounted read-only", `mount -t ext4 -o ro $(cat $W/d) $W/m || exit $?
ls $W/m; umount $W/m`},
	{"a dirty journal: it can be mounted read-only only with noload", unmapped + ` || exit 99
` + mapped + `mount -t ext4 $(cat $W/d) $W/m && echo x > $W/m/x && sync && rbd cp --no-progress $I dirty-$I $A || exit 98
umount $W/m; ` + unmapped + ` || exit 97
rbd map dirty-$I $A -o noudev > $W/d || exit 96
d=$(cat $W/d); blockdev --setro $d
mount -t ext4 -o ro $d $W/m 2>/dev/null; echo $?
mount -t ext4 -o ro,noload $d $W/m; echo $?
umount $W/m; ` + unmapped + ` || exit 95
` + mapped + `blockdev --setro $(cat $W/d)`},
	{"after a new map it can be written to", unmapped + ` || exit 99
` + mapped + `blockdev --getro $(cat $W/d); ` + unmapped},
}
